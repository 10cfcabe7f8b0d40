#include "telemetry/exposition.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "telemetry/process_figures.h"
#include "telemetry/samples.h"

namespace outboard::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using Sample = Samples::Sample;

// The labels of the cells with this number, the last label counting fastest.
std::vector<ClientMetric::Label> LabelsAt(const MetricInfo& info, size_t number,
                                          const std::vector<std::string>& classes) {
  std::vector<ClientMetric::Label> labels;
  for (size_t i = info.labels.size(); i-- > 0;) {
    const Label& label = info.labels[i];
    const size_t at = number % label.size();
    number /= label.size();
    std::string value;
    if (!label.values.empty())
      value = label.values[at];
    else if (at < classes.size())
      value = classes[at];
    labels.insert(labels.begin(), {std::string(label.name), std::move(value)});
  }
  return labels;
}

void AddCounters(const MetricInfo& info, MetricFamily& family) {
  const std::vector<uint64_t> cells = CellsOf(info.id);
  const bool is_dynamic = !info.labels.empty() && info.labels[0].values.empty();
  const std::vector<std::string> classes =
      is_dynamic ? DeviceClasses() : std::vector<std::string>();
  for (size_t i = 0; i < cells.size(); ++i) {
    if (is_dynamic && i >= classes.size()) break;
    // Two labels make hundreds of pairs, of which a process sees a dozen.
    if (info.labels.size() > 1 && cells[i] == 0) continue;
    ClientMetric& metric = family.metric.emplace_back();
    metric.label = LabelsAt(info, i, classes);
    metric.counter.value = static_cast<double>(cells[i]) * info.unit;
  }
}

void AddHistograms(const MetricInfo& info, MetricFamily& family) {
  const std::vector<uint64_t> cells = CellsOf(info.id);
  const size_t per_label = info.buckets.size() + 2;
  for (size_t first = 0; first < cells.size(); first += per_label) {
    ClientMetric metric;
    metric.label = LabelsAt(info, first / per_label, {});
    uint64_t count = 0;
    for (size_t i = 0; i <= info.buckets.size(); ++i) {
      count += cells[first + i];
      metric.histogram.bucket.push_back({count, i < info.buckets.size()
                                                    ? info.buckets[i]
                                                    : std::numeric_limits<double>::infinity()});
    }
    if (!info.labels.empty() && count == 0) continue;
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = static_cast<double>(cells[first + per_label - 1]) * info.unit;
    family.metric.push_back(std::move(metric));
  }
}

void AddSample(const MetricInfo& info, const Sample& sample, MetricFamily& family) {
  ClientMetric& metric = family.metric.emplace_back();
  if (sample.labels.empty()) {
    metric.label = LabelsAt(info, sample.label, {});
  } else {
    for (size_t i = 0; i < sample.labels.size() && i < info.labels.size(); ++i)
      metric.label.push_back({std::string(info.labels[i].name), sample.labels[i]});
  }
  (info.type == MetricType::kCounter ? metric.counter.value : metric.gauge.value) =
      sample.value * info.unit;
}

MetricFamily FamilyOf(const MetricInfo& info) {
  MetricFamily family;
  family.name = info.name;
  family.help = info.help;
  switch (info.type) {
    case MetricType::kCounter: family.type = prometheus::MetricType::Counter; break;
    case MetricType::kGauge: family.type = prometheus::MetricType::Gauge; break;
    case MetricType::kHistogram: family.type = prometheus::MetricType::Histogram; break;
  }
  return family;
}

}  // namespace

std::string Exposition(Processes processes, const BuildInfo& build, bool by_account) {
  Samples samples = TakeSamples();
  SampleProcess(samples);
  samples.SetFor(Metric::kBuildInfo, {build.version, build.protocol, build.graph_schema}, 1);
  samples.Set(Metric::kLogDropped, static_cast<double>(DroppedLogEvents()));
  std::vector<MetricFamily> families;
  for (const MetricInfo& info : MetricTable()) {
    if ((info.processes & processes) == 0 || (info.by_account && !by_account)) continue;
    MetricFamily family = FamilyOf(info);
    for (const Sample& sample : samples.all())
      if (sample.metric == info.id) AddSample(info, sample, family);
    if (family.metric.empty() && !info.by_account) {
      if (info.type == MetricType::kCounter) AddCounters(info, family);
      if (info.type == MetricType::kHistogram) AddHistograms(info, family);
    }
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace outboard::telemetry
