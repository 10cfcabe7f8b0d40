#include "gateway/prices/rates_on_paper.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"

namespace outboard::gateway {

namespace {

// Peaks by the vendor's data sheet, in GFLOP/s without sparsity and GB/s: f32 by vectors, the rest
// by matrix units; 0: it has none of that kind. TF32 of gfx942 is not listed: no kernel uses it.
struct PeakRates {
  std::string_view name;  // as the fingerprint has it: a model of NVIDIA's, or AMD's architecture
  std::string_view arch;
  int units;  // multiprocessors
  double f32, tf32, half, f8, memory_gb_per_s;
};
constexpr PeakRates kAmd[] = {
    {"gfx942", "gfx942", 304, 163'400, 0, 1'307'400, 2'614'900, 5'300},  // Instinct MI300X
    {"gfx1100", "gfx1100", 96, 61'400, 0, 122'800, 0, 960},              // Radeon RX 7900 XTX
};
// Sums in f32. Data sheets of the A100, L40S, H100 and H200; the white paper of the RTX 4090's
// AD102.
constexpr PeakRates kNvidia[] = {
    {"NVIDIA A100-SXM4-40GB", "sm_80", 108, 19'500, 156'000, 312'000, 0, 1'555},
    {"NVIDIA A100-SXM4-80GB", "sm_80", 108, 19'500, 156'000, 312'000, 0, 2'039},
    {"NVIDIA A100 80GB PCIe", "sm_80", 108, 19'500, 156'000, 312'000, 0, 1'935},
    {"NVIDIA GeForce RTX 4090", "sm_89", 128, 82'600, 82'600, 165'200, 330'300, 1'008},
    {"NVIDIA L40S", "sm_89", 142, 91'600, 183'000, 362'000, 733'000, 864},
    {"NVIDIA H100 PCIe", "sm_90a", 114, 51'200, 378'000, 756'000, 1'513'000, 2'000},
    {"NVIDIA H100 80GB HBM3", "sm_90a", 132, 66'900, 494'700, 989'400, 1'978'900, 3'350},
    {"NVIDIA H200", "sm_90a", 132, 66'900, 494'700, 989'400, 1'978'900, 4'800},
};

// Beginnings of NVIDIA's names that are models of these alone, as far as NVIDIA's GPUs have names.
constexpr std::string_view kNvidiaBeginnings[] = {
    "NVIDIA A100", "NVIDIA A100-", "NVIDIA A100-SXM4", "NVIDIA A100-SXM4-", "NVIDIA A100 80GB",
    "NVIDIA H100", "NVIDIA H100 80GB"};

// What a device is taken to reach of them: about what the rate check finds of NVIDIA's.
constexpr double kReachedPart = 0.5;

bool Skip(std::string_view what, std::string_view& text) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// Adds those of `peaks` that `rest`, a fingerprint's from its name on, may be. `behind_name`
// follows a name there; one with anything else behind it is another model: "NVIDIA H200 NVL".
template <size_t kCount>
void AddMatching(std::string_view rest, const PeakRates (&peaks)[kCount],
                 std::string_view behind_name, std::vector<const PeakRates*>& all) {
  for (const PeakRates& one : peaks) {
    std::string_view behind = rest;
    if (Skip(one.name, behind) && (behind == "*" || behind.starts_with(behind_name)))
      all.push_back(&one);
  }
}

// The GPUs that `hardware` may be; empty: it may be others.
std::vector<const PeakRates*> PeaksOf(std::string_view hardware) {
  std::vector<const PeakRates*> all;
  const bool is_amd = Skip("amd; ", hardware) || hardware.starts_with("amd ");
  if (!is_amd) Skip("cuda; ", hardware);
  if (!Skip(is_amd ? "amd blocks of " : "cuda blocks of ", hardware)) return all;
  while (!hardware.empty() && absl::ascii_isdigit(hardware.front())) hardware.remove_prefix(1);
  if (!Skip(" ", hardware)) return all;
  if (is_amd) {
    AddMatching(hardware, kAmd, " ", all);
    return all;
  }
  AddMatching(hardware, kNvidia, " sm_", all);
  if (!all.empty() || !hardware.ends_with('*')) return all;
  hardware.remove_suffix(1);
  if (std::ranges::count(kNvidiaBeginnings, hardware) == 0) return all;
  for (const PeakRates& one : kNvidia)
    if (one.name.starts_with(hardware)) all.push_back(&one);
  return all;
}

std::vector<const PeakRates*> PeaksOf(const PriceClass& of) {
  std::vector<const PeakRates*> all;
  for (const std::string& one : of.hardware) {
    const std::vector<const PeakRates*> peaks = PeaksOf(one);
    if (peaks.empty()) return {};
    all.insert(all.end(), peaks.begin(), peaks.end());
  }
  return all;
}

bool IsAmd(const PeakRates& peaks) { return peaks.arch.starts_with("gfx"); }

}  // namespace

StatedRates StatedRatesOf(const PriceClass& of) {
  StatedRates stated{of.rates};
  const std::vector<const PeakRates*> all = PeaksOf(of);
  if (all.empty()) return stated;
  const auto least = [&](double PeakRates::* rate) {
    double found = all[0]->*rate;
    for (const PeakRates* const one : all) found = std::min(found, one->*rate);
    return kReachedPart * found;
  };
  stated.tf32_gflops = least(&PeakRates::tf32);
  stated.half_gflops = least(&PeakRates::half);
  stated.f8_gflops = least(&PeakRates::f8);
  const auto fill = [&](double& rate, double PeakRates::* peak) {
    if (rate > 0) return;
    rate = least(peak);
    stated.on_paper = true;
  };
  fill(stated.rates.gflops, &PeakRates::f32);
  fill(stated.rates.memory_gb_per_s, &PeakRates::memory_gb_per_s);
  for (const PeakRates* const one : all) stated.on_paper |= IsAmd(*one);
  return stated;
}

std::optional<Target> TargetOnPaper(const PriceClass& of) {
  const std::vector<const PeakRates*> all = PeaksOf(of);
  if (all.empty()) return std::nullopt;
  const PeakRates* fewest = all[0];
  for (const PeakRates* const one : all) {
    if (one->arch != fewest->arch) return std::nullopt;
    if (one->units < fewest->units) fewest = one;
  }
  const std::string arch(fewest->arch);
  return IsAmd(*fewest) ? AmdTarget(arch, fewest->units) : CudaTarget(arch, fewest->units);
}

}  // namespace outboard::gateway
