// Values that are read when somebody scrapes /metrics: gauges, and totals that are kept elsewhere.
// Whoever has such values adds a sampler, which is called on the thread of the scrape; it may take
// locks that are held briefly, and must read nothing that grows with all history.
//
// Threads: any. A sampler is not called any more once its Sampled is destroyed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "telemetry/metric.h"

namespace outboard::telemetry {

// What samplers say. Values of the same metric and labels are added up, except that of ages and
// limits the largest counts (Largest).
class Samples {
 public:
  struct Sample {
    Metric metric;
    size_t label = 0;                 // where the table lists the values
    std::vector<std::string> labels;  // where it does not
    double value = 0;
    bool largest = false;
  };

  void Set(Metric metric, double value) { Add({metric, 0, {}, value, false}); }
  template <typename Value>
  void SetAs(Metric metric, Value label, double value) {
    Add({metric, static_cast<size_t>(label), {}, value, false});
  }
  void SetFor(Metric metric, std::vector<std::string> labels, double value) {
    Add({metric, 0, std::move(labels), value, false});
  }
  void Largest(Metric metric, double value) { Add({metric, 0, {}, value, true}); }

  const std::vector<Sample>& all() const { return all_; }

 private:
  void Add(Sample sample);

  std::vector<Sample> all_;
};

using Sampler = std::function<void(Samples&)>;

// A sampler's registration with the process. Its destructor waits for a call that is under way.
class Sampled {
 public:
  explicit Sampled(Sampler sampler);
  ~Sampled();
  Sampled(const Sampled&) = delete;
  Sampled& operator=(const Sampled&) = delete;

 private:
  const int id_;
};

// Calls every sampler.
Samples TakeSamples();

}  // namespace outboard::telemetry
