// GPUs that kernels are compiled for, with their makers' peak rates: for estimates of classes that
// nobody has measured, and for what the rate check does not measure, products of narrow floats
// (docs/decisions/175-estimates-without-a-device.md and 192).
//
// Threads: pure.
#pragma once

#include <optional>

#include "compiler/target.h"
#include "gateway/prices/price_list.h"

namespace outboard::gateway {

// By which programs are estimated on a device of a class.
struct StatedRates {
  DeviceRates rates;  // 0: not said
  // Of products by matrix units, of TF32, of bf16 and f16, of 8-bit floats: on paper, always. 0: as
  // `rates.gflops`
  double tf32_gflops = 0, half_gflops = 0, f8_gflops = 0;
  bool on_paper = false;  // nobody has measured `rates`
};

// Where all of the class' `hardware` is of these GPUs, the vendors' rates where the price file says
// none, of several GPUs the least; else the rates of the file alone. `on_paper` where one of
// `rates` is a vendor's, and always for AMD's GPUs, which no worker serves.
// `hardware` is a fingerprint (Target::Fingerprint) or its beginning and a `*`, with or without the
// kind of device that a worker writes before it: "amd; amd blocks of 256 gfx942*". Of NVIDIA's GPUs
// the beginning has the whole name, or is one of those that only these GPUs have ("NVIDIA H100*").
StatedRates StatedRatesOf(const PriceClass& of);

// What kernels of a device of the class are scheduled for; nothing where it may be one of several
// kinds, or none of these GPUs.
std::optional<Target> TargetOnPaper(const PriceClass& of);

}  // namespace outboard::gateway
