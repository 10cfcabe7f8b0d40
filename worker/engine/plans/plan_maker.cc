#include "worker/engine/plans/plan_maker.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/print.h"
#include "compiler/schedule_options.h"

namespace outboard::worker {

using Clock = std::chrono::steady_clock;

namespace {

// Of loading a kernel: devices know one by its symbol, which all have in common, people by `name`.
absl::Status NamedFor(const absl::Status& status, const std::string& symbol,
                      const std::string& name) {
  return {status.code(), absl::StrReplaceAll(status.message(), {{symbol, name}})};
}

}  // namespace

PlanMaker::PlanMaker(KernelCompiler* compiler, runtime::Device* device,
                     const CompiledEngineOptions& options, KernelsInUse* kernels)
    : compiler_(compiler),
      device_(device),
      debug_(options.debug),
      scores_(options.scores),
      overwrites_(options.overwrites),
      target_(compiler->target()),
      kernels_(kernels) {
  if (options.store == nullptr) return;
  TunerOptions tuning{.width = options.beam, .report = options.debug >= 1, .target = target_,
                      .cold_caches = options.beam_cold, .watch = options.launch_watch};
  if (options.search_seconds_max.has_value())
    tuning.kernel_seconds_max = tuning.plan_seconds_max = *options.search_seconds_max;
  tuner_.emplace(options.store, options.candidates != nullptr ? options.candidates : compiler,
                 device, tuning);
}

absl::StatusOr<PlanMaker::Missing> PlanMaker::FindMissing(const PlanRequest& request, Graph& graph,
                                                          const schedule::Schedule& schedule,
                                                          std::vector<WantedKernel>& wanted,
                                                          Kernels& kernels) {
  Missing missing;
  for (size_t w = 0; w < wanted.size(); ++w) {
    WantedKernel& one = wanted[w];
    const UOp* const ast = WithCopies(graph, schedule.kernels[one.first].ast, one.copies);
    if (debug_ >= 4) std::fprintf(stderr, "%s\n", ExpressionToString(ast, 4000).c_str());
    OB_ASSIGN_OR_RETURN(EncodedGraph encoded, EncodeGraph(ast));
    one.id = KernelId(encoded.id);
    if (one.copies > 1 && request.SimplerOf(one.id) == Simpler::kInHalves) {
      one.refused = true;
      continue;
    }
    const auto [place, fresh] = kernels.try_emplace(one.id);
    if (!fresh) continue;  // a twin
    place->second = kernels_->Find(one.id);
    if (place->second != nullptr) continue;
    missing.sources.push_back({std::move(encoded.bytes), std::nullopt});
    const std::string copies = one.copies > 1 ? absl::StrCat(one.copies, " x ") : "";
    missing.kernels.push_back({w, ast, copies + schedule::KernelToString(schedule, one.first)});
  }
  return missing;
}

void PlanMaker::ChooseOpts(const PlanRequest& request, const std::vector<WantedKernel>& wanted,
                           Missing& missing) {
  const bool is_tuned = tuner_.has_value() && request.tuned;
  std::vector<Tuner::Kernel> tuned;  // those whose Opts nobody has pinned
  std::vector<size_t> places;        // of these, in `missing`
  if (is_tuned) tuner_->BeginPlan();
  for (size_t i = 0; i < missing.kernels.size(); ++i) {
    const MissingKernel& kernel = missing.kernels[i];
    const KernelId& id = wanted[kernel.wanted].id;
    if (const std::optional<Simpler> simpler = request.SimplerOf(id); simpler.has_value()) {
      if (*simpler != Simpler::kCompilersOpts) missing.sources[i].opts = "";
    } else if (const auto pinned = kernels_->PinnedOpts(id); pinned.has_value()) {
      missing.sources[i].opts = *pinned;
    } else if (is_tuned) {
      tuned.push_back({kernel.ast, kernel.name});
      places.push_back(i);
    }
  }
  if (tuned.empty()) return;
  std::vector<std::optional<std::string>> opts = tuner_->OptsFor(tuned);
  for (size_t i = 0; i < tuned.size(); ++i) {
    missing.kernels[places[i]].is_tuned = opts[i].has_value();
    missing.sources[places[i]].opts = std::move(opts[i]);
  }
}

absl::Status PlanMaker::TakeShared(const PlanRequest& request,
                                   const std::vector<WantedKernel>& wanted,
                                   Missing& missing) const {
  std::vector<KernelVersion> mine;
  for (size_t i = 0; i < missing.kernels.size(); ++i)
    if (missing.sources[i].opts.has_value())
      mine.push_back({wanted[missing.kernels[i].wanted].id, missing.sources[i].opts});
  OB_ASSIGN_OR_RETURN(const std::vector<KernelVersion> all, request.share(mine));
  absl::flat_hash_map<KernelId, std::optional<std::string>> chosen;
  for (const KernelVersion& version : all) chosen[version.kernel] = version.opts;
  for (size_t i = 0; i < missing.kernels.size(); ++i) {
    const KernelId& id = wanted[missing.kernels[i].wanted].id;
    // What a replay requires is the same on all ranks, and so is what one of them cannot make.
    if (request.SimplerOf(id).has_value() || kernels_->PinnedOpts(id).has_value()) continue;
    const auto found = chosen.find(id);
    missing.sources[i].opts = found == chosen.end() ? std::nullopt : found->second;
    missing.kernels[i].is_tuned = tuner_.has_value() && missing.sources[i].opts.has_value();
  }
  return absl::OkStatus();
}

std::vector<absl::StatusOr<CompiledKernel>> PlanMaker::Compile(std::vector<KernelSource>& sources) {
  std::vector<absl::StatusOr<CompiledKernel>> compiled = compiler_->Compile(sources);
  // A store may have been written by another build, or by anybody.
  for (size_t i = 0; i < sources.size(); ++i) {
    if (compiled[i].ok() || !sources[i].opts.has_value()) continue;
    sources[i].opts = std::nullopt;
    compiled[i] = std::move(compiler_->Compile({&sources[i], 1})[0]);
  }
  return compiled;
}

// Changes Opts that a driver does not take to others that it may: what the compiler chooses, then
// plain loops. Of plain loops that a search chose, the compiler's choice is what is left.
// False where there is nothing left.
static bool TakeSimplerOpts(bool searched_plain, std::optional<std::string>& opts) {
  if (opts == "" && !searched_plain) return false;
  if (!opts.has_value() && searched_plain) return false;
  opts = opts.has_value() ? std::nullopt : std::optional<std::string>("");
  return true;
}

// What is noted of kernels that are made for one request, by their places in `missing`. All outlive
// it.
class PlanMaker::NewKernels {
 public:
  NewKernels(const PlanRequest& request, const schedule::Schedule& schedule,
             const std::vector<int>& results, std::vector<WantedKernel>& wanted,
             const Missing& missing)
      : request_(request),
        schedule_(schedule),
        results_(results),
        wanted_(wanted),
        missing_(missing) {
    for (const KernelSource& source : missing.sources) asked_.push_back(source.opts);
  }

  const KernelId& id(size_t i) const { return WantedAs(i).id; }

  // `status`, about the result that needs the kernel.
  absl::Status About(const absl::Status& status, size_t i) const {
    const size_t first = WantedAs(i).first;
    return AboutResult(status, request_.sink, results_[schedule_.kernels[first].buffers[0]]);
  }

  // Called for a kernel that cannot be made. If it is in several copies, returns true and marks it
  // and its twins as refused, so that they are launched in halves. Its entry in `kernels` goes: a
  // half of a larger launch may be the same kernel, and has to be tried for itself.
  bool RefusesCopies(size_t i, Kernels& kernels) {
    const WantedKernel& one = WantedAs(i);
    if (one.copies == 1) return false;
    kernels.erase(one.id);
    for (WantedKernel& other : wanted_) other.refused |= other.id == one.id;
    Tell(i, Simpler::kInHalves);
    return true;
  }

  // Of one that was made: tells the group if its Opts are simpler than those that were asked for.
  void TellIfSimpler(size_t i) {
    const std::optional<std::string>& opts = missing_.sources[i].opts;
    if (opts == asked_[i]) return;
    Tell(i, opts.has_value() ? Simpler::kPlainLoops : Simpler::kCompilersOpts);
  }

 private:
  const WantedKernel& WantedAs(size_t i) const { return wanted_[missing_.kernels[i].wanted]; }
  void Tell(size_t i, Simpler how) {
    if (request_.made_simpler != nullptr) request_.made_simpler->push_back({id(i), how});
  }

  const PlanRequest& request_;
  const schedule::Schedule& schedule_;
  const std::vector<int>& results_;
  std::vector<WantedKernel>& wanted_;
  const Missing& missing_;
  std::vector<std::optional<std::string>> asked_;  // Opts
};

absl::StatusOr<size_t> PlanMaker::MakeKernels(const PlanRequest& request, Graph& graph,
                                              const schedule::Schedule& schedule,
                                              const std::vector<int>& results,
                                              std::vector<WantedKernel>& wanted,
                                              Kernels& kernels) {
  OB_ASSIGN_OR_RETURN(Missing missing, FindMissing(request, graph, schedule, wanted, kernels));
  ChooseOpts(request, wanted, missing);
  if (request.share) OB_RETURN_IF_ERROR(TakeShared(request, wanted, missing));
  NewKernels made(request, schedule, results, wanted, missing);
  const uint64_t compile_ns = request.trace != nullptr ? request.trace->Now() : 0;
  std::vector<absl::StatusOr<CompiledKernel>> compiled = Compile(missing.sources);
  if (request.trace != nullptr)
    request.trace->Add("compile", compile_ns,
                       absl::StrCat(compiled.size(), " of ", wanted.size(), " kernels"));
  std::vector<CompiledKernel> objects;
  std::vector<size_t> places;  // of objects, in `missing`
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (!compiled[i].ok() && made.RefusesCopies(i, kernels)) continue;
    OB_RETURN_IF_ERROR(made.About(compiled[i].status(), i));
    objects.push_back(*std::move(compiled[i]));
    places.push_back(i);
  }
  size_t added = 0;
  std::vector<runtime::LoadedKernel> loaded = device_->LoadAll(objects);
  for (size_t o = 0; o < objects.size(); ++o) {
    const size_t i = places[o];
    KernelSource& source = missing.sources[i];
    MissingKernel& kernel = missing.kernels[i];
    LoadSimpler(kernel, source, loaded[o]);
    if (!loaded[o].ok() && made.RefusesCopies(i, kernels)) continue;
    OB_RETURN_IF_ERROR(
        made.About(NamedFor(loaded[o].status(), objects[o].symbol, kernel.name), i));
    made.TellIfSimpler(i);
    const KernelId& id = made.id(i);
    kernels[id] =
        kernels_->Add(id, std::move(source), std::move(kernel.name), *std::move(loaded[o]));
    ++added;
  }
  return added;
}

void PlanMaker::LoadSimpler(const MissingKernel& kernel, KernelSource& source,
                            runtime::LoadedKernel& loaded) {
  const std::optional<std::string> first = source.opts;
  const bool searched_plain = kernel.is_tuned && first == "";
  while (!loaded.ok() && !absl::IsResourceExhausted(loaded.status()) &&
         TakeSimplerOpts(searched_plain, source.opts)) {
    const auto simpler = std::move(compiler_->Compile({&source, 1})[0]);
    if (simpler.ok()) loaded = device_->Load(*simpler);
  }
  // Simpler code of the same kernel was taken: it was these Opts, and not the device.
  // Where there are none by now, the compiler has refused them before.
  if (loaded.ok() && kernel.is_tuned && first.has_value() && source.opts != first)
    tuner_->Strike({kernel.ast, kernel.name}, *first);
}

absl::StatusOr<std::unique_ptr<ExecutionPlan>> PlanMaker::Make(const PlanRequest& request) {
  const TraceSpan span(request.trace, "plan");
  const Clock::time_point start = Clock::now();
  Graph graph;
  auto plan = std::make_unique<ExecutionPlan>();
  OB_ASSIGN_OR_RETURN(schedule::Schedule schedule,
                      schedule::MakeSchedule(graph, request.sink, target_, request.donated,
                                             ScheduleOptionsOf()));
  if (debug_ >= 3) std::fputs(schedule::ScheduleToString(schedule).c_str(), stderr);

  const std::vector<int> results = ResultsOf(schedule);
  std::vector<WantedKernel> wanted = WantedBy(schedule);
  Kernels kernels;
  OB_ASSIGN_OR_RETURN(size_t compiled,
                      MakeKernels(request, graph, schedule, results, wanted, kernels));
  while (std::ranges::any_of(wanted, &WantedKernel::refused)) {  // down to one copy each
    wanted = InHalves(wanted);
    OB_ASSIGN_OR_RETURN(const size_t halves,
                        MakeKernels(request, graph, schedule, results, wanted, kernels));
    compiled += halves;
  }
  for (const WantedKernel& one : wanted) {
    const std::shared_ptr<KernelInUse>& kernel = kernels.at(one.id);
    plan->launches.push_back({kernel, BuffersOf(schedule, one, *kernel->loaded),
                              results[schedule.kernels[one.first].buffers[0]]});
  }
  int64_t largest = 0, result_bytes = 0, in_place_bytes = 0;
  for (size_t b = 0; b < schedule.buffers.size(); ++b) {
    const schedule::ScheduledBuffer& buffer = schedule.buffers[b];
    if (buffer.kind == schedule::ScheduledBuffer::Kind::kOutput) {
      result_bytes += buffer.bytes();
      if (schedule.over[buffer.index] != schedule::kNoInput) in_place_bytes += buffer.bytes();
    } else if (buffer.kind == schedule::ScheduledBuffer::Kind::kTemporary &&
               buffer.bytes() > largest) {
      largest = buffer.bytes();
      plan->largest_temporary = results[b];
    }
  }
  const size_t count = schedule.kernels.size();
  schedule.kernels.clear();  // their graph ends with this function
  plan->schedule = std::move(schedule);
  NumberByLaunch(wanted, plan->schedule.steps);
  if (debug_ >= 1)
    std::fprintf(stderr,
                 "plan: %zu kernels, %zu compiled, %zu launches, %.1f MB of temporaries, "
                 "%.1f MB of results, %.1f of them in place, %.1f ms\n",
                 count, compiled, plan->launches.size(),
                 static_cast<double>(plan->schedule.arena_bytes) / 1e6,
                 static_cast<double>(result_bytes) / 1e6,
                 static_cast<double>(in_place_bytes) / 1e6,
                 std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  return plan;
}

schedule::ScheduleOptions PlanMaker::ScheduleOptionsOf() const {
  schedule::ScheduleOptions options = ScheduleOptionsFor(target_);
  options.scores = scores_;
  options.overwrites = overwrites_;
  return options;
}

}  // namespace outboard::worker
