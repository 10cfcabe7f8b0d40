// Classes of hardware that kernels are compiled for, and that no worker serves: nobody can have
// measured them, so their rates are on paper: the vendor's, or those of the price file
// (docs/decisions/175-estimates-without-a-device.md).
//
// Threads: pure.
#pragma once

#include "gateway/prices/price_list.h"

namespace outboard::gateway {

// By which programs are estimated on a device of a class.
struct StatedRates {
  DeviceRates rates;      // 0: not said
  bool on_paper = false;  // nobody has measured them
};

// Where all of the class' `hardware` is of this kind: `on_paper`, and for the rates that the price
// file does not say those of the vendor; of several kinds the least. Else the rates of the file.
// `hardware` is a fingerprint (Target::Fingerprint) or its beginning and a `*`, with or without the
// kind of device that a worker writes before it: "amd; amd blocks of 256 gfx942*".
StatedRates StatedRatesOf(const PriceClass& of);

}  // namespace outboard::gateway
