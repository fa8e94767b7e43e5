//! What a Markdown page holds that can be checked: anchors, links, and commands in code.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// What links to a place in it end in.
    pub anchors: Vec<String>,
    pub links: Vec<Link>,
    pub code: Vec<Code>,
}

/// A link or an image.
#[derive(Debug)]
pub struct Link {
    pub line: usize,
    pub target: String,
    /// Where its whole text stands.
    pub range: Range<usize>,
}

/// A line of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    pub line: usize,
    pub text: String,
    /// Whether it stands in a paragraph, where it may be cut short.
    pub is_span: bool,
}

/// Reads a page. Blocks that say they are of a language other than the shell's are no code to be run.
pub fn read(text: &str) -> Page {
    let mut page = Page::default();
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let mut heading: Option<String> = None;
    let mut block: Option<(usize, String)> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => page.anchor(&heading.take().unwrap_or_default()),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let (line, target) = (line_of(range.start), dest_url.into_string());
                page.links.push(Link { line, target, range });
            }
            Event::Start(Tag::CodeBlock(kind)) if is_shell(&kind) => block = Some((0, String::new())),
            Event::End(TagEnd::CodeBlock) => {
                let (first, text) = block.take().unwrap_or_default();
                page.block(&text, first);
            }
            Event::Text(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                } else if let Some((first, text)) = &mut block {
                    if text.is_empty() {
                        *first = line_of(range.start);
                    }
                    text.push_str(&words);
                }
            }
            Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
                page.code.push(Code { line: line_of(range.start), text: words.into_string(), is_span: true });
            }
            _ => {}
        }
    }
    page
}

fn is_shell(kind: &CodeBlockKind<'_>) -> bool {
    match kind {
        CodeBlockKind::Indented => true,
        CodeBlockKind::Fenced(language) => matches!(language.as_ref(), "" | "console" | "sh"),
    }
}

impl Page {
    /// A heading's anchor, as GitHub and mdBook make it; the second of a name gets a number.
    fn anchor(&mut self, heading: &str) {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let slug: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let slug = slug.replace(' ', "-");
        let same = |anchor: &&String| {
            anchor.strip_prefix(&slug).is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok())
            })
        };
        let earlier = self.anchors.iter().filter(same).count();
        self.anchors.push(if earlier == 0 { slug } else { format!("{slug}-{earlier}") });
    }

    /// Lines of a block; one that ends in a backslash goes on in the next.
    fn block(&mut self, text: &str, first: usize) {
        let mut begun: Option<Code> = None;
        for (index, line) in text.lines().enumerate() {
            let mut code = match begun.take() {
                Some(code) => Code { text: code.text + " " + line.trim_start(), ..code },
                None => Code { line: first + index, text: line.to_owned(), is_span: false },
            };
            match code.text.strip_suffix('\\') {
                Some(text) => {
                    code.text = text.trim_end().to_owned();
                    begun = Some(code);
                }
                None => self.code.push(code),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_the_headings() {
        let page = read("# A `b_c`: D!\n\n## Twice\n\n## Twice\n");
        assert_eq!(page.anchors, ["a-b_c-d", "twice", "twice-1"]);
    }

    #[test]
    fn links_and_images_are_found_with_their_lines() {
        let page = read("a\n\n[b](c.md#d) ![e](f.png) <https://docs.rs> `[no](link)`\n\n[g]: h.md\n[g]\n");
        let links: Vec<(usize, &str)> = page.links.iter().map(|l| (l.line, l.target.as_str())).collect();
        assert_eq!(links, [(3, "c.md#d"), (3, "f.png"), (3, "https://docs.rs"), (6, "h.md")]);
    }

    #[test]
    fn code_is_found_in_blocks_and_paragraphs_but_not_in_other_languages() {
        let text = "say `x y`\n\n    one\n    two \\\n      and more\n\n```yaml\nkey: 1\n```\n\n```console\n$ three\n```\n";
        let code = |line, text: &str, is_span| Code { line, text: text.into(), is_span };
        let expected = [
            code(1, "x y", true),
            code(3, "one", false),
            code(4, "two and more", false),
            code(12, "$ three", false),
        ];
        assert_eq!(read(text).code, expected);
    }
}
