// The line of the user's Python program that runs now: that of the innermost frame which is not of
// this package.
//
// Needs the GIL. Costs some 100 ns: what a frame stands for is looked up once.
#pragma once

#include <string>

#include "client/tensor/at.h"

namespace outboard::python {

At Here();

// Frames of files under `folder` are the package's own.
void SetPackageFolder(std::string folder);

}  // namespace outboard::python
