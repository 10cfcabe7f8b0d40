#include "client/session/estimate/estimate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace outboard::session {

namespace {

// Fitted to programs that do not judge them, as far as decision 182 says.
// The part of the rate of a large product of matrices that sums of products reach.
constexpr double kProductShare = 0.85;
// The part of it that other arithmetic reaches: one instruction where a product counts two, and no
// register is used twice.
constexpr double kOtherShare = 0.25;
// To start a kernel. One of little work is a single thread's; for another a processor wakes the
// other threads, and waits for the last.
constexpr double kLittleWorkSeconds = 12e-6, kLittleKernelSeconds = 1e-6;
constexpr double kThreadsSeconds = 40e-6;
// What no processor reaches starts kernels by itself.
constexpr double kAcceleratorGflops = 10'000, kLaunchSeconds = 5e-6;
constexpr double kRunSeconds = 60e-6;    // to send a Run
constexpr double kWaitSeconds = 170e-6;  // until a value that is waited for has come back

constexpr double kSecondsPerHour = 3600;

EstimateRange Around(double expected, double factor) {
  return {expected, expected / factor, expected * factor};
}

// Whether the rate of a kernel's products is that of matrix units, which is on paper.
bool HasRateOnPaper(const std::vector<KernelWork>& kernels, const DeviceClass& of) {
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelWork& k) {
    return k.products > 0 && GflopsOf(of, k.kind) > of.gflops;
  });
}

// Money of the seconds, on so many devices.
EstimateRange PriceOf(const DeviceClass& of, const EstimateRange& seconds, uint64_t devices) {
  const double per_second = static_cast<double>(of.run_per_hour_micro_usd) / kSecondsPerHour *
                            static_cast<double>(devices);
  return {seconds.expected * per_second, seconds.low * per_second, seconds.high * per_second};
}

}  // namespace

double GflopsOf(const DeviceClass& of, ProductKind kind) {
  double special = 0;
  switch (kind) {
    case ProductKind::kF32: break;
    case ProductKind::kThreeTf32: special = of.tf32_gflops / 3; break;
    case ProductKind::kTf32: special = of.tf32_gflops; break;
    case ProductKind::kHalf: special = of.half_gflops; break;
    case ProductKind::kF8: special = of.f8_gflops > 0 ? of.f8_gflops : of.half_gflops; break;
  }
  return std::max(of.gflops, special);
}

double DeviceSeconds(const std::vector<KernelWork>& kernels, const DeviceClass& of) {
  const bool is_processor = of.gflops < kAcceleratorGflops;
  const double start = is_processor ? kThreadsSeconds : kLaunchSeconds,
               little = is_processor ? kLittleKernelSeconds : kLaunchSeconds;
  double seconds = 0;
  for (const KernelWork& k : kernels) {
    const double arithmetic = k.products / (GflopsOf(of, k.kind) * 1e9 * kProductShare) +
                              k.others / (of.gflops * 1e9 * kOtherShare);
    const double work = std::max(arithmetic, k.bytes / (of.memory_gb_per_s * 1e9));
    seconds += k.count * (work + (work < kLittleWorkSeconds ? little : start));
  }
  return seconds;
}

ClassEstimate EstimateFor(const DeviceClass& of, const RecordedWork& work) {
  ClassEstimate estimate{.of = of};
  if (!work.unknown.empty()) {
    estimate.unknown = work.unknown;
  } else if (work.runs == 0) {
    estimate.unknown = "the program computed nothing";
  } else if (work.devices != 1) {
    estimate.unknown = "several devices are not estimated, only measured";
  } else if (of.gflops <= 0 || of.memory_gb_per_s <= 0) {
    estimate.unknown = "the class does not say its rates";
  } else {
    const double device = DeviceSeconds(work.kernels, of) +
                          static_cast<double>(work.runs) * kRunSeconds +
                          static_cast<double>(std::min(work.waits, work.runs)) * kWaitSeconds;
    // A program that reads a value in each step waits for it; any other is ahead of its device.
    const bool waits = 2 * work.waits >= work.runs;
    const double expected =
        waits ? device + work.client_s : std::max(device, work.client_s);
    estimate.of.rates_on_paper |= HasRateOnPaper(work.kernels, of);
    estimate.seconds = Around(
        expected, estimate.of.rates_on_paper ? kRatesOnPaperRangeFactor : kGraphRangeFactor);
    estimate.micro_usd = PriceOf(of, *estimate.seconds, 1);
  }
  return estimate;
}

ClassEstimate EstimateMeasured(const DeviceClass& of, uint64_t steps, double seconds_per_step,
                               uint64_t devices) {
  ClassEstimate estimate{.of = of, .is_measured = true};
  const double expected = static_cast<double>(steps) * seconds_per_step;
  estimate.seconds =
      EstimateRange{expected, expected * (1 - kMeasuredRange), expected * (1 + kMeasuredRange)};
  estimate.micro_usd = PriceOf(of, *estimate.seconds, devices);
  return estimate;
}

std::string EstimateLine(const ClassEstimate& estimate, double actual_seconds,
                         uint64_t actual_micro_usd) {
  const std::string actual =
      absl::StrFormat("actual %.3g s, $%.6f", actual_seconds,
                      static_cast<double>(actual_micro_usd) / 1e6);
  if (!estimate.seconds.has_value())
    return absl::StrCat("estimate: unknown: ", estimate.unknown, "; ", actual);
  const EstimateRange& seconds = *estimate.seconds;
  return absl::StrFormat("estimate %.3g s (%.3g to %.3g), $%.6f; %s; error %.0f %%",
                         seconds.expected, seconds.low, seconds.high,
                         estimate.micro_usd->expected / 1e6, actual,
                         100 * ErrorOf(seconds.expected, actual_seconds));
}

double ErrorOf(double estimate, double actual) { return std::abs(actual / estimate - 1); }

}  // namespace outboard::session
