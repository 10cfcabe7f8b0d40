#include "client/session/estimate/rates_on_paper.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/ascii.h"

namespace outboard::session {

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

void FillRatesOnPaper(const std::vector<std::string>& hardware, DeviceClass& of) {
  double gflops = 0, memory_gb_per_s = 0;
  for (const std::string& one : hardware) {
    const PeakRates* const peaks = PeaksOf(one);
    if (peaks == nullptr) return;
    const auto least = [](double so_far, double rate) {
      return so_far == 0 ? rate : std::min(so_far, rate);
    };
    gflops = least(gflops, kReachedPart * peaks->gflops);
    memory_gb_per_s = least(memory_gb_per_s, kReachedPart * peaks->memory_gb_per_s);
  }
  if (hardware.empty()) return;
  of.rates_on_paper = true;
  if (of.gflops <= 0) of.gflops = gflops;
  if (of.memory_gb_per_s <= 0) of.memory_gb_per_s = memory_gb_per_s;
}

}  // namespace outboard::session
