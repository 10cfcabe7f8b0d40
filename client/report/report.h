// What a program tells `outboard sweep` of its training (docs/sweeps.md):
//
//   outboard::Report(step, {{"loss", loss.item<float>()}});
//
// Without a sweep it does nothing, so that a program can have it always.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "client/tensor/at.h"

namespace outboard {

using ReportedValue = std::pair<std::string_view, double>;

// Reports values at `step`, which counts from 0 and does not fall. A name has letters, digits, _,
// ., / and -, and does not begin with a digit. Values that are not finite are reported as such.
// Throws Error INVALID_ARGUMENT for another name, and for a step below 0. Threads: any.
void Report(int64_t step, std::span<const ReportedValue> values, At at = At::current());
void Report(int64_t step, std::initializer_list<ReportedValue> values, At at = At::current());

// True if a sweep reads what is reported.
bool IsTrialOfSweep();

// A sweep's warm-up (`outboard sweep --warm-up K`) ends with the first report of step K or later:
// Report then leaves the session and ends the process.
// True if that is so at `step`. Throws FAILED_PRECONDITION if nothing has been kept
// (client/nn/kept.h): its trials would begin with nothing.
bool WarmUpEndsAt(int64_t step, At at = At::current());

namespace internal {
// As Report, without the end of a warm-up.
void ReportAlone(int64_t step, std::span<const ReportedValue> values, At at);
}  // namespace internal

}  // namespace outboard
