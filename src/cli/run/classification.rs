//! What a classifier says: its label, the most likely classes, and what a file of outputs keeps of them.

use std::collections::HashMap;

use serde_json::json;

use crate::mil::Model;
use crate::mil::ops::classify::{Classifier, class_name};
use crate::render::Table;
use crate::runtime::Session;

/// How many classes are shown.
const SHOWN: usize = 5;

/// Entry of a file's metadata that says the label and names the classes in the order of their probabilities.
const METADATA_KEY: &str = "classifier";

/// The result of a classifier's last prediction.
pub(super) struct Classification<'m> {
    classifier: Classifier<'m>,
    label: String,
    probabilities: Vec<f64>,
}

impl<'m> Classification<'m> {
    /// What a function classified, if it is a classifier and this is the session of its prediction.
    pub(super) fn of(model: &'m Model, function: &str, session: &dyn Session) -> Option<Classification<'m>> {
        let classifier = Classifier::of(model.program.function(function)?)?;
        let label = class_name(&session.output(classifier.label)?);
        let probabilities = session.output(classifier.probabilities)?.slice::<f64>().ok()?.to_vec();
        Some(Classification { classifier, label, probabilities })
    }

    /// The label in a line.
    pub(super) fn line(&self) -> String {
        format!("{}: {}", self.classifier.label, self.label)
    }

    /// The most likely classes, the likeliest first.
    pub(super) fn table(&self) -> Table {
        let mut classes: Vec<_> = self.classifier.classes.iter().zip(&self.probabilities).collect();
        classes.sort_by(|a, b| b.1.total_cmp(a.1));
        let rows = classes.iter().take(SHOWN);
        let rows = rows.map(|(class, value)| vec![class_name(&class.view()), format!("{value:.4}")]);
        Table::new(&["class", ">probability"]).with(rows)
    }

    /// What a file of outputs keeps of it besides its tensors. One entry: several would be in no order.
    pub(super) fn metadata(&self) -> HashMap<String, String> {
        let classes: Vec<_> = self.classifier.classes.iter().map(|class| class_name(&class.view())).collect();
        let said = json!({ self.classifier.label: self.label, self.classifier.probabilities: classes });
        HashMap::from([(METADATA_KEY.to_owned(), said.to_string())])
    }
}
