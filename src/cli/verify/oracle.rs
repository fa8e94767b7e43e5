//! The oracle of a checkpoint, or one clear error in a build that has none.

use crate::cli::{Failure, Result};

#[cfg(feature = "oracle")]
pub(super) use crate::oracle::{open, open_encoder, open_stored, trace};
#[cfg(not(feature = "oracle"))]
pub(super) use absent::{open, open_encoder, open_stored, trace};

/// Refuses to go on in a build without the oracle.
pub(super) fn require(is_built: bool) -> Result<()> {
    match is_built {
        true => Ok(()),
        false => {
            Err(Failure::bad_input("verify --checkpoint: this build has no oracle that computes checkpoints")
                .with_help(
                    "build anemeter with its default features, or compare with another bundle by --against",
                ))
        }
    }
}

/// [`require`] comes before every use of these.
#[cfg(not(feature = "oracle"))]
mod absent {
    use crate::bundle::Rotated;
    use crate::checkpoint::Checkpoint;
    use crate::verify::{EncoderOracle, Misstored, Oracle, OracleError, StoredWeights, Trace};

    pub(in super::super) fn open(_: &Checkpoint, _: usize) -> Result<Box<dyn Oracle>, OracleError> {
        unreachable!("a build without the oracle refuses --checkpoint")
    }

    pub(in super::super) fn open_encoder(
        _: &Checkpoint,
        _: usize,
    ) -> Result<Box<dyn EncoderOracle>, OracleError> {
        unreachable!("a build without the oracle refuses --checkpoint")
    }

    pub(in super::super) struct StoredReference {
        pub(in super::super) oracle: Box<dyn Oracle>,
        pub(in super::super) misstored: Vec<Misstored>,
        pub(in super::super) unplaced: Vec<String>,
    }

    pub(in super::super) fn open_stored(
        _: &Checkpoint,
        _: &StoredWeights,
        _: usize,
    ) -> Result<StoredReference, OracleError> {
        unreachable!("a build without the oracle refuses --checkpoint")
    }

    pub(in super::super) fn trace(
        _: &Checkpoint,
        _: (Option<&StoredWeights>, Option<&Rotated>),
        _: &[u32],
    ) -> Result<Trace, OracleError> {
        unreachable!("a build without the oracle refuses --checkpoint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_oracle_says_so() {
        assert!(require(true).is_ok());
        let failure = require(false).unwrap_err();
        assert!(format!("{failure:?}").contains("this build has no oracle"), "{failure:?}");
    }
}
