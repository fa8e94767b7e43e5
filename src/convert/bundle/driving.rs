//! How a bundle is driven as a language model, whoever made its packages.

use super::contract::Contract;
use super::{Bundle, BundleError, Encoder, EncoderOutput, Function, MANIFEST, Manifest};
use anemeter_base::advice::Remedy;
use anemeter_base::function_name::{FunctionName, function_name};
use anemeter_base::vocabulary::{FunctionRole, KvForm};

impl Bundle {
    /// Whether it is described on disk, where records of it are kept, and not around packages in memory.
    pub fn is_on_disk(&self) -> bool {
        // A package of a bundle alone is not that bundle.
        self.source == self.folder && self.path(MANIFEST).is_file()
    }

    /// Refuses an encoder, which generates no text.
    pub fn check_generates(&self) -> Result<(), BundleError> {
        let Some(encoder) = &self.manifest().encoder else { return Ok(()) };
        let gives = match encoder.output {
            EncoderOutput::Embedding => "embeddings of texts",
            EncoderOutput::Scores => "scores of texts",
            EncoderOutput::HiddenStates => "vectors of tokens",
        };
        let problem = format!("is an encoder: it gives {gives} and generates no text");
        Err(BundleError::new(self.source(), problem).with_help(Remedy::EmbedTexts))
    }

    /// How an encoder makes vectors or scores of texts; an error if the bundle is none.
    pub fn encoder(&self) -> Result<&Encoder, BundleError> {
        let none = || {
            let problem = "is no encoder, so it gives no vectors of texts";
            BundleError::new(self.source(), problem).with_help(Remedy::ExportEncoder)
        };
        self.manifest().encoder.as_ref().ok_or_else(none)
    }

    /// The same description, of a language model.
    pub fn language_model(&self) -> Result<&Manifest, BundleError> {
        let manifest = self.manifest();
        self.check_generates()?;
        let none = || {
            let problem = "nothing says how the packages are driven as a language model";
            BundleError::new(self.source(), problem).with_help(Remedy::GiveContract)
        };
        if manifest.forms().is_empty() { Err(none()) } else { Ok(manifest) }
    }
}

impl Manifest {
    /// The same with a contract, and with the packages in the order in which that runs them.
    #[must_use]
    pub fn keeping(mut self, contract: Option<Contract>) -> Manifest {
        if let Some(contract) = &contract {
            let place = |name: &str| contract.packages.iter().position(|of| of.package == name);
            self.chunks.sort_by_key(|chunk| place(&chunk.file.name).unwrap_or(usize::MAX));
        }
        Manifest { contract, ..self }
    }

    /// Forms of the KV cache, the default first; none if it is no language model.
    pub fn forms(&self) -> Vec<KvForm> {
        match (&self.contract, &self.settings) {
            (Some(contract), _) => vec![contract.kv()],
            (None, Some(settings)) => settings.kv.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// Sequence lengths of a form, or contexts of the form `state`.
    pub fn lengths(&self, form: KvForm) -> Vec<usize> {
        match (&self.contract, &self.settings) {
            (Some(contract), _) if contract.kv() == form => contract.lengths(),
            (None, Some(settings)) if form == KvForm::State => settings.contexts.clone(),
            (None, Some(settings)) => settings.seq_lens.clone(),
            _ => Vec::new(),
        }
    }

    /// Tokens in the vocabulary; none if it is no language model.
    pub fn vocabulary(&self) -> Option<usize> {
        let contract = self.contract.as_ref().map(|contract| contract.vocabulary);
        contract.or(self.architecture.as_ref().map(|architecture| architecture.vocabulary))
    }

    /// Longest sequence that makes sense to it; none if it is no language model.
    pub fn max_positions(&self) -> Option<usize> {
        let contract = self.contract.as_ref().map(|contract| contract.context_length);
        contract.or(self.architecture.as_ref().map(|architecture| architecture.max_positions))
    }

    /// What a function is called at a length.
    pub fn function_name(&self, role: FunctionRole, length: usize) -> String {
        let shapes_as = self.settings.as_ref().map(|settings| settings.shapes_as);
        function_name(role, length, shapes_as.unwrap_or_default())
    }

    /// Sequences of one prediction.
    pub fn batch(&self) -> usize {
        self.settings.as_ref().map_or(1, |settings| settings.batch)
    }

    /// The functions of a package that run in a form at some lengths.
    pub fn functions_that_run<'a>(
        &'a self,
        package: &'a str,
        form: KvForm,
        lengths: &'a [usize],
    ) -> impl Iterator<Item = &'a Function> {
        let chunks = self.chunks.iter().filter(move |chunk| chunk.file.name == package);
        chunks.flat_map(|chunk| &chunk.functions).filter(move |function| match &self.contract {
            Some(contract) => contract.runs(package, &function.name),
            None => {
                let name = function.name.parse::<FunctionName>();
                name.is_ok_and(|name| lengths.iter().any(|&length| name.runs_at(form, length)))
            }
        })
    }

    /// The functions of a package that a prediction of one token runs in a form at a length.
    pub fn functions_of_a_token(&self, package: &str, form: KvForm, length: usize) -> Vec<String> {
        match &self.contract {
            Some(contract) => contract.decoding(package).map(str::to_owned).collect(),
            None => vec![self.function_name(form.decode_role(length), length)],
        }
    }
}
