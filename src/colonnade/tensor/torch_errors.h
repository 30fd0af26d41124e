// Translation of LibTorch's exceptions.
#pragma once

#include <functional>

namespace colonnade::tensor {

/// Runs `body` and returns its result. Rethrows a LibTorch error as an Error without the C++ stack trace: out
/// of memory with a fix, anything else as a defect of this program to be reported.
int translate_torch_errors(const std::function<int()>& body);

}  // namespace colonnade::tensor
