// Counts what happens, for /metrics: process-wide cells, one for each combination of a metric and
// its label values. To count costs one relaxed atomic addition, so the step path can afford it, and
// needs no object, so cores and drivers count without knowing who shows it. All gateways and
// workers of a process count together.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/metric.h"

namespace outboard::telemetry {

// Adds to a counter without labels, or to the one with the label values of these indices. Of a
// counter whose unit is 1e-6 (metric.cc) `more` is in millionths: microseconds, micro-dollars.
void Count(Metric metric, uint64_t more = 1);
void CountAt(Metric metric, size_t label, uint64_t more = 1);
template <typename Value>
void CountAs(Metric metric, Value value, uint64_t more = 1) {
  CountAt(metric, static_cast<size_t>(value), more);
}
// The gateway said no, for this reason.
inline void CountRefused(Refusal reason) { CountAs(Metric::kRefused, reason); }

// Adds a time to a histogram.
void ObserveNs(Metric metric, int64_t ns, size_t label = 0);

// The label of a class of hardware: the same for the same name, and one for all that come after
// the first 15.
size_t DeviceClassLabel(std::string_view name);

// Whether this process counts; on by default. Off in benchmarks that measure its cost.
void SetCounting(bool counts);

// The value of a counter's cell, for tests.
uint64_t CountOf(Metric metric, size_t label = 0);

// ---- what executors count, on its way to their supervisor
struct CellCount {
  uint32_t metric = 0, cell = 0;  // `cell` counts within the metric
  uint64_t more = 0;
};
// What was counted since the last call, of the metrics that executors count.
std::vector<CellCount> TakeCounts();
// Adds what an executor has reported. One that says nonsense is not believed: what is not an
// executor's to count, or no cell, is ignored.
void AddCounts(std::span<const CellCount> counts);

// ---- for the exposition
// A copy of the cells of a metric: its counters by label, or for each label the buckets, the one
// above all bounds, and the sum.
std::vector<uint64_t> CellsOf(Metric metric);
// The classes so far, in the order of their labels.
std::vector<std::string> DeviceClasses();

}  // namespace outboard::telemetry
