//! One exception tree and one conversion from the shared error. Runs with the GIL held.

use llgtrt_core::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(_native, LlgtrtError, PyException, "Base of every error raised by the core.");
create_exception!(_native, InvalidRequestError, LlgtrtError, "A field of the request is wrong.");
create_exception!(
    _native,
    ContextLengthError,
    InvalidRequestError,
    "Prompt plus requested tokens do not fit the context."
);
create_exception!(
    _native,
    GrammarError,
    InvalidRequestError,
    "The grammar was refused, or failed while generating."
);
create_exception!(
    _native,
    ConstraintError,
    LlgtrtError,
    "No answer was found that satisfies the part of a schema that no grammar holds."
);
create_exception!(_native, OverloadedError, LlgtrtError, "A queue is full; try again later.");
create_exception!(_native, ShuttingDownError, LlgtrtError, "The server is shutting down.");
create_exception!(_native, NotFiniteError, LlgtrtError, "The model produced no finite logit.");
create_exception!(
    _native,
    LogitsProcessorError,
    LlgtrtError,
    "A logits processor of the operator's failed for this request."
);
create_exception!(
    _native,
    ForwardPassError,
    LlgtrtError,
    "A forward pass failed with this request in it; the engine goes on."
);
create_exception!(
    _native,
    EngineFailedError,
    LlgtrtError,
    "The engine failed; this process generates nothing more."
);
create_exception!(
    _native,
    ConfigurationError,
    LlgtrtError,
    "The configuration or the model files are unusable."
);
create_exception!(_native, InternalError, LlgtrtError, "A defect of the server.");

/// The exception for an error, with its attributes set.
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.message.clone();
    let exception = match error.kind {
        ErrorKind::InvalidRequest => InvalidRequestError::new_err(message),
        ErrorKind::ContextLength => ContextLengthError::new_err(message),
        ErrorKind::Grammar => GrammarError::new_err(message),
        ErrorKind::Constraint => ConstraintError::new_err(message),
        ErrorKind::Overloaded => OverloadedError::new_err(message),
        ErrorKind::ShuttingDown => ShuttingDownError::new_err(message),
        ErrorKind::NotFinite => NotFiniteError::new_err(message),
        ErrorKind::LogitsProcessor => LogitsProcessorError::new_err(message),
        ErrorKind::ForwardPass => ForwardPassError::new_err(message),
        ErrorKind::EngineFailed => EngineFailedError::new_err(message),
        ErrorKind::Configuration => ConfigurationError::new_err(message),
        ErrorKind::Internal => InternalError::new_err(message),
    };
    let value = exception.value(py);
    let set = value
        .setattr("kind", error.kind.as_str())
        .and_then(|()| value.setattr("message", &error.message))
        .and_then(|()| value.setattr("param", error.param.as_deref()));
    match set {
        Ok(()) => exception,
        Err(failure) => failure,
    }
}

/// `?` for results with the shared error.
pub(crate) trait OrRaise<T> {
    /// The value, or the Python exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for llgtrt_core::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, &error))
    }
}

/// Adds the tree to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("LlgtrtError", py.get_type::<LlgtrtError>())?;
    module.add("InvalidRequestError", py.get_type::<InvalidRequestError>())?;
    module.add("ContextLengthError", py.get_type::<ContextLengthError>())?;
    module.add("GrammarError", py.get_type::<GrammarError>())?;
    module.add("ConstraintError", py.get_type::<ConstraintError>())?;
    module.add("OverloadedError", py.get_type::<OverloadedError>())?;
    module.add("ShuttingDownError", py.get_type::<ShuttingDownError>())?;
    module.add("NotFiniteError", py.get_type::<NotFiniteError>())?;
    module.add("LogitsProcessorError", py.get_type::<LogitsProcessorError>())?;
    module.add("ForwardPassError", py.get_type::<ForwardPassError>())?;
    module.add("EngineFailedError", py.get_type::<EngineFailedError>())?;
    module.add("ConfigurationError", py.get_type::<ConfigurationError>())?;
    module.add("InternalError", py.get_type::<InternalError>())
}
