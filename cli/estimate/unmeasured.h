// Classes of hardware that kernels are compiled for, and that no worker serves: nobody can have
// measured them, so an estimate takes what the vendor says
// (docs/decisions/175-estimates-without-a-device.md).
//
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "client/session/estimate/estimate.h"

namespace outboard::cli {

// Marks a class of a price file as unmeasured if all of its `hardware` ("amd:gfx942",
// "amd:gfx942*") is of this kind, and gives it the rates that the file does not say; of several
// kinds the least.
void FillUnmeasured(const std::vector<std::string>& hardware, session::DeviceClass& of);

}  // namespace outboard::cli
