//! Chat templates that double, nest and recur, by a seed.

use fastrand::Rng;

/// A template of statements that each make the one before worse.
pub(super) fn made(random: &mut Rng) -> String {
    let mut text =
        String::from("{% set x = 'ab' %}{% set l = [1, 2] %}{% set ns = namespace(v='a', l=[]) %}");
    for _ in 0..random.usize(1..6) {
        text += &statement(random, 0);
    }
    text + "{{ x }}{{ messages[0].content }}"
}

fn statement(random: &mut Rng, depth: usize) -> String {
    let times = [3, 40, 1000, 100_000][random.usize(..4)];
    let inner = |random: &mut Rng| match depth {
        0..3 => statement(random, depth + 1),
        _ => "{{ x }}".to_owned(),
    };
    match random.u8(..14) {
        0 => format!("{{% for i in range({times}) %}}{}{{% endfor %}}", inner(random)),
        1 => "{% set x = x ~ x %}".repeat(random.usize(1..60)),
        2 => "{% set l = l + l %}".repeat(random.usize(1..60)),
        3 => format!("{{% set ns.v = ns.v ~ ns.v %}}{}", inner(random)),
        4 => "{% set ns.l = [ns.l] %}".to_owned(),
        5 => "{% set ns.l = [ns.l, ns.l] %}".repeat(random.usize(1..40)),
        6 => format!("{{% set x = x * {} %}}", [3u64, 1 << 20, 1 << 40, u64::MAX >> 1][random.usize(..4)]),
        7 => "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".to_owned(),
        8 => format!("{{{{ x | replace('a', x) | replace('b', x) | upper }}}}{}", inner(random)),
        9 => format!("{{{{ {}1{} }}}}", "(".repeat(random.usize(1..400)), ")".repeat(random.usize(1..400))),
        10 => "{% set ns.l = ns %}{{ ns }}{{ ns | tojson }}".to_owned(),
        11 => format!("{{{{ '%{}d' | format(1) }}}}{{{{ x.center({times}) }}}}", random.u32(..)),
        12 => format!(
            "{{% for i in range({times}) %}}{{% for j in l %}}{}{{% endfor %}}{{% endfor %}}",
            inner(random)
        ),
        _ => "{% filter upper %}{% for i in range(100000) %}{{ x }}{% endfor %}{% endfilter %}".to_owned(),
    }
}
