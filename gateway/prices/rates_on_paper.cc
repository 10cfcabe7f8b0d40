#include "gateway/prices/rates_on_paper.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/ascii.h"

namespace outboard::gateway {

namespace {

// Peaks by the vendor's data sheets: float32 by vectors, since products of f32 use no matrix unit
// there, and memory.
struct PeakRates {
  std::string_view arch;
  double gflops, memory_gb_per_s;
};
constexpr std::array kPeaks = {
    PeakRates{"gfx942", 163'400, 5'300},  // Instinct MI300X
    PeakRates{"gfx1100", 61'400, 960},    // Radeon RX 7900 XTX
};

// What a device is taken to reach of them: about what the rate check finds of NVIDIA's.
constexpr double kReachedPart = 0.5;

bool Skip(std::string_view what, std::string_view& text) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// nullptr: it may be other hardware.
const PeakRates* PeaksOf(std::string_view hardware) {
  Skip("amd; ", hardware);
  if (!Skip("amd blocks of ", hardware)) return nullptr;
  while (!hardware.empty() && absl::ascii_isdigit(hardware.front())) hardware.remove_prefix(1);
  if (!Skip(" ", hardware)) return nullptr;
  for (const PeakRates& peaks : kPeaks) {
    std::string_view rest = hardware;
    if (Skip(peaks.arch, rest) && (rest == "*" || rest.starts_with(' '))) return &peaks;
  }
  return nullptr;
}

}  // namespace

StatedRates StatedRatesOf(const PriceClass& of) {
  StatedRates stated{of.rates};
  DeviceRates on_paper;
  for (const std::string& one : of.hardware) {
    const PeakRates* const peaks = PeaksOf(one);
    if (peaks == nullptr) return stated;
    const auto least = [](double so_far, double rate) {
      return so_far == 0 ? rate : std::min(so_far, rate);
    };
    on_paper.gflops = least(on_paper.gflops, kReachedPart * peaks->gflops);
    on_paper.memory_gb_per_s =
        least(on_paper.memory_gb_per_s, kReachedPart * peaks->memory_gb_per_s);
  }
  if (of.hardware.empty()) return stated;
  stated.on_paper = true;
  if (stated.rates.gflops <= 0) stated.rates.gflops = on_paper.gflops;
  if (stated.rates.memory_gb_per_s <= 0) stated.rates.memory_gb_per_s = on_paper.memory_gb_per_s;
  return stated;
}

}  // namespace outboard::gateway
