#include "worker/tuning/tuner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/encoding.h"
#include "compiler/optimize/opt.h"
#include "compiler/rewrite/bind.h"
#include "compiler/search/beam.h"
#include "compiler/search/neighbours.h"
#include "worker/tuning/kernel_measurer.h"
#include "worker/tuning/tuning_key.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kForeverSeconds = 1e30;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t BytesOf(const UOp* kernel) {
  int64_t bytes = 0;
  for (const UOp* node : PostOrder(kernel))
    if (node->op == Op::kGlobal) bytes += GlobalOf(node).elements() * ByteWidth(node->dtype);
  return bytes * CopiesOf(kernel);
}

}  // namespace

Tuner::Tuner(TuningStore* store, KernelCompiler* compiler, runtime::Device* device,
             const TunerOptions& options)
    : store_(store), compiler_(compiler), device_(device), options_(options) {}

std::vector<std::optional<std::string>> Tuner::OptsFor(std::span<const Kernel> kernels) {
  std::vector<std::optional<std::string>> opts(kernels.size());
  std::vector<TuningKey> keys;
  std::vector<size_t> places;  // of keys, among the kernels
  for (size_t i = 0; i < kernels.size(); ++i) {
    absl::StatusOr<EncodedGraph> canonical = CanonicalKernel(kernels[i].kernel);
    if (!canonical.ok()) continue;
    keys.push_back({canonical->id.ToBytes(), search::kSpaceVersion, options_.target.Fingerprint(),
                    std::move(canonical->bytes)});
    places.push_back(i);
  }
  absl::StatusOr<std::vector<std::optional<Tuning>>> known = store_->FindAll(keys);
  if (!known.ok()) return opts;
  for (size_t k = 0; k < keys.size(); ++k)
    opts[places[k]] = OptsFor(kernels[places[k]], keys[k], std::move((*known)[k]));
  return opts;
}

std::optional<std::string> Tuner::OptsFor(const Kernel& kernel, const TuningKey& key,
                                          std::optional<Tuning> known) {
  const auto searched = [&] { return known.has_value() && known->width >= options_.width; };
  const auto look_again = [&] {
    absl::StatusOr<std::optional<Tuning>> now = store_->Find(key);
    if (now.ok()) known = *std::move(now);
    return now.ok();
  };
  const double seconds_max =
      std::min(options_.kernel_seconds_max, options_.plan_seconds_max - plan_seconds_);
  // Kernels of one plan may have one key: the first has been searched for since.
  if (options_.width > 0 && !searched() && !look_again()) return std::nullopt;
  if (options_.width > 0 && !searched() && seconds_max > 0) {
    Graph graph;
    std::vector<search::Trial> trials;
    if (known.has_value()) trials = std::move(known->trials);
    const Clock::time_point start = Clock::now();
    const absl::Status status =
        Search(AtLargest(graph, kernel.kernel), kernel.name, key, std::move(trials), seconds_max);
    plan_seconds_ += SecondsSince(start);
    if (options_.report && !status.ok())
      std::fprintf(stderr, "search: %s  %s\n", status.ToString().c_str(), kernel.name.c_str());
    if (!look_again()) return std::nullopt;
  }
  const search::Trial* const best = known.has_value() ? known->best() : nullptr;
  if (best == nullptr) return std::nullopt;
  return codegen::OptsToString(best->opts);
}

void Tuner::Strike(const Kernel& kernel, const std::string& opts) {
  const absl::StatusOr<EncodedGraph> canonical = CanonicalKernel(kernel.kernel);
  absl::StatusOr<std::vector<codegen::Opt>> list = codegen::ParseOpts(opts);
  if (!canonical.ok() || !list.ok()) return;
  const TuningKey key = {canonical->id.ToBytes(), search::kSpaceVersion,
                         options_.target.Fingerprint(), canonical->bytes};
  // Without it the next plan tries them once more.
  store_->Add(key, kernel.name, {.opts = *std::move(list)}).IgnoreError();
}

absl::Status Tuner::SearchFor(const Demand& demand) {
  OB_ASSIGN_OR_RETURN(std::optional<Tuning> known, store_->Find(demand.key));
  std::vector<search::Trial> trials;
  if (known.has_value()) trials = std::move(known->trials);
  if (options_.report)
    std::fprintf(stderr, "search: %.3f s were spent in  %s\n",
                 static_cast<double>(demand.cost_us) / 1e6, demand.name.c_str());
  Graph graph;
  const absl::StatusOr<const UOp*> kernel = DecodeGraph(graph, demand.encoding, Level::kKernel);
  absl::Status status = kernel.status();
  if (kernel.ok()) {
    TuningKey key = demand.key;
    key.canonical = demand.encoding;
    status = Search(*kernel, demand.name, key, std::move(trials), kForeverSeconds);
  }
  if (status.ok() || absl::IsUnavailable(status)) return status;
  if (options_.report)
    std::fprintf(stderr, "search: %s  %s\n", status.ToString().c_str(), demand.name.c_str());
  return store_->Finish(demand.key, options_.width);  // by itself: it is of no use to others
}

absl::StatusOr<bool> Tuner::SearchUntil(const UOp* kernel, const std::string& name,
                                        const TuningKey& key, const std::function<bool()>& stop) {
  OB_ASSIGN_OR_RETURN(std::optional<Tuning> known, store_->Find(key));
  if (known.has_value() && known->width >= options_.width) return true;
  std::vector<search::Trial> trials;
  if (known.has_value()) trials = std::move(known->trials);
  Graph graph;
  const absl::Status status = Search(AtLargest(graph, kernel), name, key, std::move(trials),
                                     kForeverSeconds, stop);
  if (absl::IsCancelled(status) || absl::IsUnavailable(status)) return false;  // somebody waits
  OB_RETURN_IF_ERROR(status);
  OB_ASSIGN_OR_RETURN(known, store_->Find(key));
  return known.has_value() && known->width >= options_.width;
}

absl::Status Tuner::Search(const UOp* kernel, const std::string& name, const TuningKey& key,
                           std::vector<search::Trial> known, double seconds_max,
                           const std::function<bool()>& stop) {
  if (const int64_t bytes = BytesOf(kernel); bytes > options_.memory_bytes_max)
    return absl::ResourceExhaustedError(
        absl::StrCat("buffers of ", bytes, " bytes; the limit is ", options_.memory_bytes_max));
  const Clock::time_point start = Clock::now();
  OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(kernel));
  KernelMeasurer device(std::move(encoded.bytes), compiler_, device_,
                        {options_.batch, options_.watch, options_.cold_caches,
                         options_.memory_bytes_max - BytesOf(kernel)});
  OB_RETURN_IF_ERROR(device.Open());
  const size_t known_count = known.size();
  search::BeamOptions options;
  options.width = options_.width;
  options.target = options_.target;
  options.stop = [&] { return SecondsSince(start) > seconds_max || (stop && stop()); };
  options.may_end_process = !device_->properties().is_processor;
  // What is not kept is measured again; the search itself does not need it.
  options.on_trial = [&](const search::Trial& trial) {
    store_->Add(key, name, trial).IgnoreError();
  };
  OB_ASSIGN_OR_RETURN(const search::BeamResult result,
                      search::Beam(kernel, device, options, std::move(known)));
  if (result.finished) OB_RETURN_IF_ERROR(store_->Finish(key, options_.width));
  if (options_.report && options.may_end_process && !device.conditions_status().ok() &&
      !std::exchange(says_no_clocks_, true))
    std::fprintf(stderr, "search: trials are stored without clocks: %s\n",
                 std::string(device.conditions_status().message()).c_str());
  if (options_.report)
    std::fprintf(stderr, "search: %5.1f s, %3zu trials%s, %.1f to %.1f us  %s  %s\n",
                 SecondsSince(start), result.trials.size() - known_count,
                 result.finished ? "" : " (goes on another time)",
                 static_cast<double>(result.start_ns) / 1e3,
                 static_cast<double>(result.best.time_ns) / 1e3,
                 codegen::OptsToString(result.best.opts).c_str(), name.c_str());
  return absl::OkStatus();
}

}  // namespace outboard::worker
