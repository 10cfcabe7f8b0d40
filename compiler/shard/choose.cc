#include "compiler/shard/choose.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "compiler/shard/lower.h"
#include "compiler/shard/step_state.h"

namespace outboard::shard {
namespace {

// What nothing waits for but the end of the Run, the sums of gradients, is on its way while the
// rest of the backward pass is computed. That is two thirds of a step, and they come one by one
// until its end: on average half of it, a third of the computing, is left for one, and nothing for
// the last. So at most half of their time is hidden.
double SecondsOf(const ShardWork& work, const DeviceSpeeds& speeds) {
  const double computing = work.operations / speeds.operations_per_s;
  return computing + work.transfer_s - 0.5 * std::min(work.late_s, computing / 3);
}

// Predicts one candidate, a Run of which finds its inputs as the candidate says.
struct Predicted {
  Prediction prediction;
  std::vector<Layout> results;
  std::unique_ptr<Planner> planner;  // holds `plan`
  const FramePlan* plan = nullptr;
};

// Sets those results of `candidate` whose sharding no Layout has to one that has.
// Errors: as Planner::Plan.
absl::StatusOr<Predicted> Predict(const Mesh& mesh, const UOp* sink, GraphNodes& nodes,
                                  const StepState& state, const ShardOptions& options,
                                  SpreadCandidate& candidate) {
  Predicted predicted;
  for (bool again = true; again;) {
    if (nodes.compared_parts > 2 * nodes.compared_parts_max)
      return absl::ResourceExhaustedError(
          absl::StrCat("plans for several devices, as results can be stored, have over ",
                       2 * nodes.compared_parts_max, " nodes, sources and dimensions"));
    again = false;
    predicted.planner = std::make_unique<Planner>(mesh, sink, nodes);
    OB_ASSIGN_OR_RETURN(predicted.plan, predicted.planner->Plan(sink, candidate.inputs()));
    predicted.results.clear();
    for (size_t i = 0; i < sink->src.size(); ++i) {
      const ShapeView shape = sink->src[i]->shape;
      const Sharding& p = predicted.plan->results[i];
      if (const std::optional<Layout> layout = LayoutOfSharding(mesh, p, shape)) {
        predicted.results.push_back(*layout);
        continue;
      }
      // The same cuts, in the parts in which values are stored.
      Sharding stored = WholeSharding(static_cast<int>(shape.size()));
      for (size_t dim = 0; dim < shape.size(); ++dim)
        if (const AxisSet axes = p.dims[dim].axes; axes != 0)
          stored.dims[dim] = CutSharding(mesh, shape, static_cast<int64_t>(dim), axes).dims[dim];
      candidate.results[i] = std::move(stored);
      again = true;  // each result once
    }
  }
  RankWriter writer(nullptr, mesh, sink, &state.is_donated, options.speeds);
  OB_RETURN_IF_ERROR(writer.Run(*predicted.plan).status());
  const ShardWork& work = writer.work();
  const auto held = static_cast<double>(options.memory.held_bytes);
  predicted.prediction = {.seconds = SecondsOf(work, options.speeds),
                          .memory_bytes = held + work.peak_bytes,
                          .kept_bytes = held + work.kept_bytes};
  return predicted;
}

// Whether one more plan of the graph may be made, only to be compared.
bool MayCompare(const GraphNodes& nodes) {
  return nodes.compared_parts < nodes.compared_parts_max;
}

// Whether `a` is to be chosen rather than `b`. No choice gets better by what is known of its later
// steps.
bool IsBetter(const SpreadChoice& a, const SpreadChoice& b, const DeviceMemory& memory) {
  const auto has = static_cast<double>(memory.bytes);
  const auto room = [has](const Prediction& p) {
    return has == 0 || p.memory_bytes <= has ? 2 : p.kept_bytes <= has ? 1 : 0;
  };
  // This Run has to leave what has room, whatever comes later.
  const bool can_a = room(a.prediction) > 0, can_b = room(b.prediction) > 0;
  if (can_a != can_b) return can_a;
  const int room_a = std::min(room(a.prediction), room(a.later));
  const int room_b = std::min(room(b.prediction), room(b.later));
  if (room_a != room_b) return room_a > room_b;
  if (room_a == 2) return a.later.seconds < b.later.seconds;
  return std::max(a.prediction.memory_bytes, a.later.memory_bytes) <
         std::max(b.prediction.memory_bytes, b.later.memory_bytes);
}

// The bytes that a device of `devices` has after the Run if everything is cut that may be.
double KeptBytesOn(int64_t devices, const Mesh& mesh, const UOp* sink, const StepState& state,
                   absl::Span<const Layout> params, const ShardOptions& options) {
  const Mesh line{{devices}};
  const auto bytes_on = [&](const UOp* value, bool may_be_cut) {
    const Layout layout = may_be_cut ? StoredLayout(line, value->shape) : Layout{};
    return LocalBytes(ShardingOf(line, layout, value->shape), value);
  };
  const auto cut = static_cast<double>(options.memory.held_cut_bytes);
  double bytes = static_cast<double>(options.memory.held_bytes) - cut +
                 cut * static_cast<double>(mesh.ranks()) / static_cast<double>(devices);
  for (size_t slot = 0; slot < state.params.size(); ++slot) {
    if (state.is_donated[slot]) continue;
    bytes += bytes_on(state.params[slot], slot < params.size() && !params[slot].is_whole());
  }
  for (size_t i = 0; i < sink->src.size(); ++i) {
    const bool whole =
        i < options.results.size() && options.results[i] && options.results[i]->is_whole();
    bytes += bytes_on(sink->src[i], !whole);
  }
  return bytes;
}

// `all`: every way to spread the graph was looked at.
absl::Status NoRoom(const Mesh& mesh, const UOp* sink, const StepState& state,
                    absl::Span<const Layout> params, const ShardOptions& options,
                    double needed_bytes, bool all) {
  if (!all)
    return absl::ResourceExhaustedError(absl::StrCat(
        "none of the ways to spread the graph over ", mesh.ranks(),
        " devices that were compared leaves room on them, and it is too large to compare the "
        "others; the one that leaves least takes ",
        static_cast<int64_t>(needed_bytes), " bytes on each, and a device has ",
        options.memory.bytes, ". A smaller graph, or a layout for what is large, may do"));
  const auto has = static_cast<double>(options.memory.bytes);
  int64_t devices = mesh.ranks() + 1;
  while (devices <= limits::kRanksMax &&
         KeptBytesOn(devices, mesh, sink, state, params, options) > has)
    ++devices;
  const bool cuts = options.spread == Spread::kAuto || options.spread == Spread::kFsdp;
  return absl::ResourceExhaustedError(absl::StrCat(
      "what the Run leaves takes ", static_cast<int64_t>(needed_bytes), " bytes on each of ",
      mesh.ranks(), " devices", cuts ? ", cut where it can be" : "", "; a device has ",
      options.memory.bytes, ". ",
      devices <= limits::kRanksMax
          ? absl::StrCat(cuts ? "" : "With spread \"fsdp\" ", devices, " devices would do")
          : "No number of devices would do"));
}

}  // namespace

absl::StatusOr<SpreadChoice> Choose(const Mesh& mesh, const UOp* sink, GraphNodes& nodes,
                                    absl::Span<const Layout> params, const ShardOptions& options) {
  const StepState state = StateOf(sink, options);
  std::vector<SpreadChoice> found;  // each judged by this Run alone
  size_t quickest = 0;
  bool all = true;
  const auto consider = [&](bool in_parts) -> absl::Status {
    const size_t before = found.size();
    for (SpreadCandidate& candidate : CandidatesOf(mesh, sink, state, params, options, in_parts)) {
      if (found.size() > before && !MayCompare(nodes)) {
        all = false;
        break;
      }
      absl::StatusOr<Predicted> predicted =
          Predict(mesh, sink, nodes, state, options, candidate);
      // One that is over a limit is no choice; without any, that is why.
      if (!predicted.ok() && !found.empty()) {
        all = false;
        break;
      }
      OB_RETURN_IF_ERROR(predicted.status());
      found.push_back({.candidate = std::move(candidate),
                       .prediction = predicted->prediction,
                       .later = predicted->prediction,
                       .results = std::move(predicted->results)});
      SpreadChoice& last = found.back();
      const bool is_first = found.size() == 1;
      if (!is_first && !IsBetter(last, found[quickest], options.memory)) continue;
      // Its plan alone is kept: plans are large, and most often it is chosen.
      found[quickest].planner.reset();
      quickest = found.size() - 1;
      last.planner = std::move(predicted->planner);
      last.plan = predicted->plan;
    }
    return absl::OkStatus();
  };
  OB_RETURN_IF_ERROR(consider(options.spread == Spread::kFsdp));
  const auto has = static_cast<double>(options.memory.bytes);
  if (options.spread == Spread::kAuto && mesh.ranks() > 1) {
    const bool is_cut =
        std::any_of(params.begin(), params.end(), [](const Layout& p) { return !p.is_whole(); });
    if (is_cut || (has > 0 && found[quickest].prediction.memory_bytes > has))
      OB_RETURN_IF_ERROR(consider(/*in_parts=*/true));
  }
  const auto least = std::min_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.prediction.kept_bytes < b.prediction.kept_bytes;
  });
  if (has > 0 && least->prediction.kept_bytes > has)
    return NoRoom(mesh, sink, state, params, options, least->prediction.kept_bytes, all);

  // Later steps find state as the first has left it. Whole state costs nothing to cut, so they are
  // taken to be no quicker: what is slower than the best by its first step is not planned again.
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto& a, const auto& b) { return IsBetter(a, b, options.memory); });
  std::vector<Layout> now(params.begin(), params.end());
  now.resize(state.params.size());
  SpreadChoice* best = nullptr;
  for (SpreadChoice& one : found) {
    if (best != nullptr && !IsBetter(one, *best, options.memory)) break;
    const std::vector<Layout> next = state.LayoutsAfter(now, one.results);
    // One whose later steps nobody knows is not compared with one whose are known.
    if (best != nullptr && next != now && !MayCompare(nodes)) break;
    if (next != now && MayCompare(nodes)) {
      SpreadCandidate later = NextStep(mesh, sink, state, next, options, one.candidate);
      const absl::StatusOr<Predicted> predicted =
          Predict(mesh, sink, nodes, state, options, later);
      if (predicted.ok())
        one.later = predicted->prediction;
      else
        one.later.seconds = std::numeric_limits<double>::infinity();  // over a limit
    }
    if (best == nullptr || IsBetter(one, *best, options.memory)) best = &one;
  }
  if (best->planner == nullptr) {
    best->planner = std::make_unique<Planner>(mesh, sink, nodes);
    OB_ASSIGN_OR_RETURN(best->plan, best->planner->Plan(sink, best->candidate.inputs()));
  }
  return std::move(*best);
}

}  // namespace outboard::shard
