// Classes of hardware that kernels are compiled for, and that no worker serves: nobody can have
// measured them, so their rates are on paper: the vendor's, or those of the price file
// (docs/decisions/175-estimates-without-a-device.md).
//
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "client/session/estimate/estimate.h"

namespace outboard::session {

// Where all of a class' `hardware` is of this kind: says that its rates are on paper, and fills in
// those that the price file does not say; of several kinds the least. `hardware` as in a price
// file: a fingerprint (Target::Fingerprint) or its beginning and a `*`, with or without the kind of
// device that a worker writes before it: "amd; amd blocks of 256 gfx942*".
void FillRatesOnPaper(const std::vector<std::string>& hardware, DeviceClass& of);

}  // namespace outboard::session
