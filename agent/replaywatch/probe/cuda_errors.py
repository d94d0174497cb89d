"""Names of CUDA errors in exceptions; a name is a metric label, so it comes from a closed table, not from free text."""

from __future__ import annotations

# Code, name, and the text that the runtime gives (cudaGetErrorString), as torch puts it behind "CUDA error: ".
TABLE: tuple[tuple[int, str, str], ...] = (
    (1, "cudaErrorInvalidValue", "invalid argument"),
    (2, "cudaErrorMemoryAllocation", "out of memory"),
    (3, "cudaErrorInitializationError", "initialization error"),
    (4, "cudaErrorCudartUnloading", "driver shutting down"),
    (46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    (98, "cudaErrorInvalidDeviceFunction", "invalid device function"),
    (100, "cudaErrorNoDevice", "no CUDA-capable device is detected"),
    (209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
    (214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    (220, "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution"),
    (400, "cudaErrorInvalidResourceHandle", "invalid resource handle"),
    (700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    (701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    (702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    (709, "cudaErrorContextIsDestroyed", "context is destroyed"),
    (710, "cudaErrorAssert", "device-side assert triggered"),
    (714, "cudaErrorHardwareStackError", "hardware stack error"),
    (715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"),
    (716, "cudaErrorMisalignedAddress", "misaligned address"),
    (717, "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"),
    (718, "cudaErrorInvalidPc", "invalid program counter"),
    (719, "cudaErrorLaunchFailure", "unspecified launch failure"),
    (720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"),
    (900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    (901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    (902, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
    (903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
    (904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
    (905, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
    (906, "cudaErrorStreamCaptureImplicit", "operation would make the legacy stream depend on a capturing"),
    (907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
    (908, "cudaErrorStreamCaptureWrongThread", "attempt to terminate a thread-local capture sequence"),
    (910, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed because it included changes"),
    (800, "cudaErrorNotPermitted", "operation not permitted"),
    (801, "cudaErrorNotSupported", "operation not supported"),
    (999, "cudaErrorUnknown", "unknown error"),
)
MAX_CODE = 10_000  # cudaErrorApiFailureBase
_BY_CODE = {code: name for code, name, _ in TABLE}
_KNOWN_CLASSES = ("OutOfMemoryError", "AcceleratorError", "RuntimeError", "KeyboardInterrupt", "AssertionError")


def error_name(error: BaseException) -> str:
    """The CUDA error in an exception, else the exception's class where it is a usual one, else `other`.

    A code of torch's that the table lacks stays a number: cudaError_721.
    """
    kind = type(error).__name__
    code = getattr(error, "error_code", None)
    if isinstance(code, int) and code in _BY_CODE:
        return _BY_CODE[code]
    if isinstance(code, int) and kind == "AcceleratorError" and 0 < code < MAX_CODE:
        return f"cudaError_{code}"
    text = str(error)[:2000]
    for _, name, _ in TABLE:
        if name in text:
            return name
    for _, name, words in TABLE:
        if words in text and ("CUDA" in text or "cuda" in text):
            return name
    return kind if kind in _KNOWN_CLASSES else "other"
