// What LibTorch throws, in the program's own words.
#pragma once

#include <functional>

namespace colonnade::tensor {

/// Runs `body` and returns what it does. An error of LibTorch that comes out of it is thrown on as Error, on
/// few lines and without the frames of C++ that LibTorch adds: too little memory with the way out, all others
/// as what they are, defects of this program, with the words to report them.
int retell_torch_errors(const std::function<int()>& body);

}  // namespace colonnade::tensor
