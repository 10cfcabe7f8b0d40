#include "telemetry/samples.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace outboard::telemetry {
namespace {

struct Samplers {
  std::mutex mutex;  // held while samplers are called
  int next = 1;
  std::map<int, Sampler> all;
};
Samplers& TheSamplers() {
  static Samplers* const samplers = new Samplers;
  return *samplers;
}

int AddSampler(Sampler sampler) {
  Samplers& samplers = TheSamplers();
  std::lock_guard lock(samplers.mutex);
  samplers.all[samplers.next] = std::move(sampler);
  return samplers.next++;
}

}  // namespace

void Samples::Add(Sample sample) {
  for (Sample& known : all_) {
    if (known.metric != sample.metric || known.label != sample.label ||
        known.labels != sample.labels)
      continue;
    known.value = sample.largest ? std::max(known.value, sample.value) : known.value + sample.value;
    return;
  }
  all_.push_back(std::move(sample));
}

Sampled::Sampled(Sampler sampler) : id_(AddSampler(std::move(sampler))) {}

Sampled::~Sampled() {
  Samplers& samplers = TheSamplers();
  std::lock_guard lock(samplers.mutex);
  samplers.all.erase(id_);
}

Samples TakeSamples() {
  Samplers& samplers = TheSamplers();
  std::lock_guard lock(samplers.mutex);
  Samples samples;
  for (const auto& [id, sampler] : samplers.all) sampler(samples);
  return samples;
}

}  // namespace outboard::telemetry
