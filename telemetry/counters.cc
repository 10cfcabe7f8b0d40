#include "telemetry/counters.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "base/check.h"

namespace outboard::telemetry {
namespace {

constexpr std::string_view kOtherClass = "other";

size_t CellsPerLabel(const MetricInfo& info) {
  return info.type == MetricType::kHistogram ? info.buckets.size() + 2 : 1;
}

size_t LabelsOf(const MetricInfo& info) {
  size_t labels = 1;
  for (const Label& label : info.labels) labels *= label.size();
  return labels;
}

// Where the cells of each metric begin; the last element is their number. Gauges have cells that
// nobody uses, which keeps this simple.
const std::array<size_t, kMetrics + 1>& Begins() {
  static const auto begins = [] {
    std::array<size_t, kMetrics + 1> at{};
    for (const MetricInfo& info : MetricTable()) {
      const auto i = static_cast<size_t>(info.id);
      at[i + 1] = at[i] + LabelsOf(info) * CellsPerLabel(info);
    }
    return at;
  }();
  return begins;
}

// Never freed: threads may count until the process ends.
std::atomic<uint64_t>* Cells() {
  static std::atomic<uint64_t>* const cells = new std::atomic<uint64_t>[Begins()[kMetrics]]();
  return cells;
}

std::span<std::atomic<uint64_t>> CellsFor(Metric metric) {
  const auto i = static_cast<size_t>(metric);
  return {Cells() + Begins()[i], Begins()[i + 1] - Begins()[i]};
}

std::atomic<bool> counting{true};

struct Classes {
  std::mutex mutex;
  std::vector<std::string> names;
};
Classes& TheClasses() {
  static Classes* const classes = new Classes;
  return *classes;
}

}  // namespace

void SetCounting(bool counts) { counting.store(counts, std::memory_order_relaxed); }

void CountAt(Metric metric, size_t label, uint64_t more) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const std::span<std::atomic<uint64_t>> cells = CellsFor(metric);
  OB_CHECK(label < cells.size());
  cells[label].fetch_add(more, std::memory_order_relaxed);
}

void Count(Metric metric, uint64_t more) { CountAt(metric, 0, more); }

void ObserveNs(Metric metric, int64_t ns, size_t label) {
  const MetricInfo& info = InfoOf(metric);
  const double seconds = static_cast<double>(ns) * 1e-9;
  const auto bucket = static_cast<size_t>(
      std::lower_bound(info.buckets.begin(), info.buckets.end(), seconds) - info.buckets.begin());
  const size_t first = label * CellsPerLabel(info);
  CountAt(metric, first + bucket);
  CountAt(metric, first + info.buckets.size() + 1,
          static_cast<uint64_t>(std::max<int64_t>(ns, 0)) / 1000);
}

size_t DeviceClassLabel(std::string_view name) {
  const size_t most = InfoOf(Metric::kDeviceTime).labels[0].size();
  Classes& classes = TheClasses();
  std::lock_guard lock(classes.mutex);
  const auto found = std::find(classes.names.begin(), classes.names.end(), name);
  if (found != classes.names.end()) return static_cast<size_t>(found - classes.names.begin());
  if (classes.names.size() + 1 >= most) {
    if (classes.names.size() < most) classes.names.emplace_back(kOtherClass);
    return most - 1;
  }
  classes.names.emplace_back(name);
  return classes.names.size() - 1;
}

std::vector<std::string> DeviceClasses() {
  Classes& classes = TheClasses();
  std::lock_guard lock(classes.mutex);
  return classes.names;
}

std::vector<uint64_t> CellsOf(Metric metric) {
  std::vector<uint64_t> values;
  for (const std::atomic<uint64_t>& cell : CellsFor(metric))
    values.push_back(cell.load(std::memory_order_relaxed));
  return values;
}

uint64_t CountOf(Metric metric, size_t label) {
  return CellsFor(metric)[label].load(std::memory_order_relaxed);
}

std::vector<CellCount> TakeCounts() {
  std::vector<CellCount> counts;
  for (const MetricInfo& info : MetricTable()) {
    if (!info.from_executors) continue;
    const std::span<std::atomic<uint64_t>> cells = CellsFor(info.id);
    for (size_t i = 0; i < cells.size(); ++i) {
      const uint64_t more = cells[i].exchange(0, std::memory_order_relaxed);
      if (more == 0) continue;
      counts.push_back({static_cast<uint32_t>(info.id), static_cast<uint32_t>(i), more});
    }
  }
  return counts;
}

void AddCounts(std::span<const CellCount> counts) {
  for (const CellCount& count : counts) {
    if (count.metric >= kMetrics || !MetricTable()[count.metric].from_executors) continue;
    const auto metric = static_cast<Metric>(count.metric);
    if (count.cell < CellsFor(metric).size()) CountAt(metric, count.cell, count.more);
  }
}

}  // namespace outboard::telemetry
