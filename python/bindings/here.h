// Returns the current line of the user's Python program: that of the innermost frame outside of
// this package.
//
// Requires the GIL. Costs some 100 ns: results per code object are cached.
#pragma once

#include <string>

#include "client/tensor/at.h"

namespace outboard::python {

At Here();

// Frames of files under `folder` are the package's own.
void SetPackageFolder(std::string folder);

}  // namespace outboard::python
