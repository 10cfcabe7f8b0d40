#include "compiler/proof/program_range.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/proof/prover.h"

namespace outboard::proof {
namespace {

using program::Code;
using program::Instruction;
using program::Program;
using program::ValueId;

constexpr int64_t kStepsMax = 20'000;  // as for a kernel's access
// The work for all loads of a program, and for all other accesses. A step of ResNet-50 has the
// largest that are known: 6 and 9 million.
constexpr int64_t kWorkMax = 32'000'000;
thread_local int64_t steps_of_proof = kStepsMax;
// What is not found of one load is rarely found of the next one from the same memory: half as many
// steps for each that failed, but not fewer. (A load that is not proved gets a guard; stores always
// have all steps.)
constexpr int64_t kStepsLeast = 1'000;
constexpr char kNotInRange[] = "outboard.not_in_range";  // the payload of its error
constexpr int kConditionStepsMax = 64;

bool IsWhole(DType dtype) { return IsInt(dtype) || IsBool(dtype); }

// The program's integers and bools as expressions: of a scalar, of each lane of a vector, and of
// any lane of it, by a counter of lanes. What is anything else, is an integer of which nothing but
// its type is known.
class Expressions {
 public:
  explicit Expressions(const Program& program)
      : program_(program), lanes_(program.code.size()), any_(program.code.size(), nullptr) {}

  const UOp* Of(ValueId value, int lane) {
    if (lanes_[value].empty()) Build(value);
    const std::vector<const UOp*>& lanes = lanes_[value];
    return lanes[lanes.size() == 1 ? 0 : lane];
  }
  // Null where lanes differ in a way that has no expression.
  const UOp* OfAnyLane(ValueId value) const { return any_[value]; }
  const UOp* LaneCounter(int lanes) {
    return Counter(static_cast<ValueId>(program_.code.size()) + lanes, lanes);
  }
  const UOp* Sum(const UOp* a, const UOp* b) {
    return graph_.MakeChecked(Op::kAdd, DType::kVoid, {a, b});
  }
  // What holds inside of a loop that has a limit.
  const UOp* BelowLimit(ValueId loop) {
    return graph_.MakeChecked(Op::kCmpLt, DType::kVoid,
                              {Of(loop, 0), Of(program_.code[loop].src[0], 0)});
  }

  void Add(ValueId n) {
    const Instruction& i = program_.code[n];
    if (!IsExpression(n)) return;
    if (i.lanes == 1) {
      lanes_[n] = {Make(n, i, 0)};
      any_[n] = lanes_[n][0];
    } else {
      any_[n] = MakeAnyLane(n, i);
    }
  }

 private:
  bool IsExpression(ValueId n) const {
    const Instruction& i = program_.code[n];
    return program::HasValue(i.code) && i.lanes > 0 && IsWhole(i.dtype);
  }

  // The lanes of a vector, after those of its sources.
  void Build(ValueId root) {
    std::vector<ValueId> stack = {root};
    while (!stack.empty()) {
      const ValueId n = stack.back();
      const size_t before = stack.size();
      for (const ValueId s : program_.code[n].src)
        if (IsExpression(s) && lanes_[s].empty()) stack.push_back(s);
      if (stack.size() > before) continue;
      stack.pop_back();
      if (!lanes_[n].empty()) continue;
      const Instruction& i = program_.code[n];
      for (int lane = 0; lane < i.lanes; ++lane) lanes_[n].push_back(Make(n, i, lane));
    }
  }

  // A load of a place of its own.
  const UOp* Unknown(DType dtype) {
    const UOp* const memory =
        graph_.MakeChecked(Op::kGlobal, dtype, {}, {static_cast<int64_t>(dtype), kPlaces});
    OB_CHECK(unknown_ < kPlaces);
    return graph_.MakeChecked(
        Op::kLoad, DType::kVoid,
        {graph_.MakeChecked(Op::kIndex, DType::kVoid, {memory, ConstIndex(graph_, unknown_++)})});
  }

  const UOp* Counter(ValueId n, int64_t extent) {
    return graph_.MakeChecked(Op::kRange, DType::kVoid, {},
                              {n, extent, static_cast<int64_t>(RangeKind::kOutput)});
  }

  const UOp* Make(ValueId n, const Instruction& i, int lane) {
    switch (i.code) {
      case Code::kConst: return graph_.MakeChecked(Op::kConst, i.dtype, {}, {i.imm[0]});
      case Code::kVar: return Var(graph_, i.imm[0], i.imm[1], i.imm[2]);
      case Code::kSpecial: return Counter(n, i.imm[1]);
      case Code::kLoop: return Counter(n, i.imm[0]);
      case Code::kLanes: return Of(i.src[i.src.size() == 1 ? 0 : lane], 0);
      case Code::kLane: return Of(i.src[0], static_cast<int>(i.imm[0]));
      case Code::kCast:
        if (IsExpression(i.src[0])) return outboard::Cast(graph_, Of(i.src[0], lane), i.dtype);
        break;
      case Code::kAlu: {
        std::vector<const UOp*> sources;
        for (const ValueId s : i.src) {
          if (!IsExpression(s)) return Unknown(i.dtype);
          sources.push_back(Of(s, lane));
        }
        return Arithmetic(i, sources);
      }
      default: break;
    }
    return Unknown(i.dtype);
  }

  const UOp* Arithmetic(const Instruction& i, const std::vector<const UOp*>& sources) {
    // A mask of lanes is joined with a gate: of the lanes that it leaves out nothing is asked.
    if (i.op == Op::kAnd && IsBool(i.dtype))
      for (const int side : {0, 1})
        if (sources[side]->is_const())
          return sources[sources[side]->int_value() != 0 ? 1 - side : side];
    return graph_.MakeChecked(i.op, DType::kVoid, sources);
  }

  const UOp* MakeAnyLane(ValueId n, const Instruction& i) {
    switch (i.code) {
      case Code::kLanes: return i.src.size() == 1 ? any_[i.src[0]] : Progression(i);
      case Code::kCast:
        if (!IsExpression(i.src[0])) break;
        return any_[i.src[0]] == nullptr ? nullptr
                                         : outboard::Cast(graph_, any_[i.src[0]], i.dtype);
      case Code::kAlu: {
        std::vector<const UOp*> sources;
        for (const ValueId s : i.src) {
          if (!IsExpression(s)) return Unknown(i.dtype);
          if (any_[s] == nullptr) return nullptr;
          sources.push_back(any_[s]);
        }
        return Arithmetic(i, sources);
      }
      default: break;
    }
    return Unknown(i.dtype);
  }

  // Constants as first + step * lane; those of bool as lane < count.
  const UOp* Progression(const Instruction& i) {
    std::vector<int64_t> numbers;
    for (const ValueId s : i.src) {
      if (program_.code[s].code != Code::kConst) return nullptr;
      numbers.push_back(program_.code[s].imm[0]);
    }
    if (IsBool(i.dtype)) {
      const auto count = std::find(numbers.begin(), numbers.end(), 0) - numbers.begin();
      if (std::find(numbers.begin() + count, numbers.end(), 1) != numbers.end()) return nullptr;
      return graph_.MakeChecked(Op::kCmpLt, DType::kVoid,
                                {LaneCounter(i.lanes), ConstIndex(graph_, count)});
    }
    if (i.dtype != DType::kI64) return nullptr;
    constexpr int64_t kMost = int64_t{1} << 48;  // no sum below wraps
    for (const int64_t number : numbers)
      if (number > kMost || number < -kMost) return nullptr;
    const int64_t step = numbers[1] - numbers[0];
    for (size_t lane = 2; lane < numbers.size(); ++lane)
      if (numbers[lane] - numbers[lane - 1] != step) return nullptr;
    return Sum(graph_.MakeChecked(Op::kMul, DType::kVoid,
                                  {LaneCounter(i.lanes), ConstIndex(graph_, step)}),
               ConstIndex(graph_, numbers[0]));
  }

  static constexpr int64_t kPlaces = int64_t{1} << 32;

  const Program& program_;
  Graph graph_;
  std::vector<std::vector<const UOp*>> lanes_;  // by value; empty: not needed yet
  std::vector<const UOp*> any_;
  int64_t unknown_ = 0;
};

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program), expressions_(program) {}

  std::vector<ValueId> Unproved() {
    std::vector<ValueId> found;
    int never = 0;  // scopes around that nothing enters
    for (size_t number = 0; number < program_.code.size(); ++number) {
      const auto n = static_cast<ValueId>(number);
      const Instruction& i = program_.code[n];
      expressions_.Add(n);
      int64_t& work = i.code == Code::kLoad ? work_for_loads_ : work_for_others_;
      const int64_t work_before = budget_.work = work;
      switch (i.code) {
        case Code::kLoop:
        case Code::kIf:
          open_.push_back(n);
          if (SaysSomething(i)) ForgetScopes();
          never += i.code == Code::kLoop && i.imm[0] == 0;
          break;
        case Code::kEnd:
        case Code::kEndIf: {
          const Instruction& opener = program_.code[open_.back()];
          never -= opener.code == Code::kLoop && opener.imm[0] == 0;
          if (SaysSomething(opener)) ForgetScopes();
          open_.pop_back();
          break;
        }
        case Code::kLoad:
        case Code::kStore: {
          if (never > 0) break;
          const bool load = i.code == Code::kLoad;
          const size_t mask = load ? 2 : 3;
          int64_t& for_loads = steps_for_loads_.try_emplace(i.src[0], steps_of_proof).first->second;
          steps_max_ = load ? for_loads : steps_of_proof;
          if (!IsInRange(i.src[0], i.src[1], i.src.size() > mask ? i.src[mask] : -1, i.lanes)) {
            found.push_back(n);
            for_loads = std::max(for_loads / 2, kStepsLeast);
          }
          steps_max_ = steps_of_proof;
          break;
        }
        case Code::kCopy:
          if (never == 0 && !(CopyEnds(i, 0) && CopyEnds(i, 2))) found.push_back(n);
          break;
        case Code::kLdmatrix:
          if (never == 0 &&
              !InRangeFrom(i.src[0], i.src[1], 0, -1, 0, 16 / ByteWidth(i.dtype) - 1))
            found.push_back(n);
          break;
        case Code::kTileLoad:
        case Code::kTileStore: {
          const int64_t last = (program::kTileSide - 1) * (i.imm[0] + 1);
          if (never == 0 && !InRangeFrom(i.src[1], i.src[2], 0, -1, 0, last)) found.push_back(n);
          break;
        }
        default:
          if (never == 0 && program::IsHopper(i.code) && !BlockMemoryInRange(i)) found.push_back(n);
          break;
      }
      work = budget_.work;
      if (work_before > 0 && work <= 0) {  // forgets what was found by half when the work ended
        unconditional_.emplace(&budget_);
        ForgetScopes();
      }
    }
    return found;
  }
  int64_t work() const { return 2 * kWorkMax - work_for_loads_ - work_for_others_; }

 private:
  // Barriers, boxes and operands of sm_90a. A swizzle stays within 1,024 bytes, of which memory has
  // a whole number (spec.h): whatever of these it touches is in range if the unswizzled place is.
  bool BlockMemoryInRange(const Instruction& i) {
    switch (i.code) {
      case Code::kMbArrive:
        if (i.src.size() == 3 && !IsRank(i.src[2])) return false;
        [[fallthrough]];
      case Code::kMbInit:
      case Code::kMbExpect:
      case Code::kMbWait: return InRangeFrom(i.src[0], i.src[1], 0, -1, 0, 0);
      case Code::kBoxLoad:
      case Code::kBoxStore: {
        const size_t map = i.code == Code::kBoxLoad ? 4 : 2;
        const int64_t number = program_.code[i.src[map]].imm[0];
        const int64_t last = program_.maps[static_cast<size_t>(number)].box_elements() - 1;
        return InRangeFrom(i.src[0], i.src[1], 0, -1, 0, last) &&
               (map == 2 || InRangeFrom(i.src[2], i.src[3], 0, -1, 0, 0));
      }
      case Code::kClusterLoad:
        return IsRank(i.src[2]) && InRangeFrom(i.src[0], i.src[1], 0, -1, 0, i.lanes - 1);
      case Code::kWgmma: {
        const int width = ByteWidth(program_.code[i.src[3]].dtype);
        const auto last = [&](int64_t leading, int64_t rows) {
          return program::WgmmaPlace(leading, static_cast<int>(rows) - 1,
                                     program::WgmmaDepth(width) - 1, width);
        };
        // Registers at a constant place: spec_hopper.h.
        const Instruction& a = program_.code[i.src[1]];
        const bool registers = a.imm[0] == static_cast<int64_t>(program::Space::kPrivate);
        return (registers || InRangeFrom(i.src[1], i.src[2], 0, -1, 0,
                                         last(i.imm[1], program::kWgmmaRows))) &&
               InRangeFrom(i.src[3], i.src[4], 0, -1, 0, last(i.imm[2], i.imm[0]));
      }
      default: return true;
    }
  }

  // Of a block in its cluster.
  bool IsRank(ValueId rank) {
    return InRangeWhere(program_.cluster, -1, expressions_.Of(rank, 0), nullptr, 0, 0);
  }

  // A mask is of the buffer: zeros are written where it is false.
  bool CopyEnds(const Instruction& i, int memory) {
    const ValueId mask = memory == 2 && i.src.size() == 5 ? i.src[4] : -1;
    return InRangeFrom(i.src[memory], i.src[memory + 1], 0, mask, 0, i.imm[0] - 1);
  }

  bool IsInRange(ValueId memory, ValueId index, ValueId mask, int lanes) {
    const bool consecutive = program_.code[index].lanes == 1;
    if (consecutive && mask < 0) return InRangeFrom(memory, index, 0, mask, 0, lanes - 1);
    if (lanes > 1) {  // all lanes at once, which mostly succeeds
      const UOp* place = expressions_.OfAnyLane(index);
      const UOp* const condition = mask < 0 ? nullptr : expressions_.OfAnyLane(mask);
      if (consecutive) place = expressions_.Sum(place, expressions_.LaneCounter(lanes));
      if (place != nullptr && (mask < 0 || condition != nullptr) &&
          InRangeWhere(ElementsOf(memory), memory, place, condition, 0, 0))
        return true;
    }
    for (int lane = 0; lane < lanes; ++lane) {
      const int64_t offset = consecutive ? lane : 0;
      if (!InRangeFrom(memory, index, lane, mask, offset, offset)) return false;
    }
    return true;
  }

  bool InRangeFrom(ValueId memory, ValueId index, int lane, ValueId mask, int64_t first,
                   int64_t last) {
    return InRangeWhere(ElementsOf(memory), memory, expressions_.Of(index, lane),
                        mask < 0 ? nullptr : expressions_.Of(mask, lane), first, last);
  }

  int64_t ElementsOf(ValueId memory) const { return program_.code[memory].imm[1]; }

  // Whether place + first and place + last are both below `elements` and not negative, where the
  // condition, unless it is null, is true.
  bool InRangeWhere(int64_t elements, ValueId memory, const UOp* place, const UOp* condition,
                    int64_t first, int64_t last) {
    const auto least_of = [&](const LinearForm& form) {
      return AddScaled(form, Constant(first), 1);
    };
    const auto left_of = [&](const LinearForm& form) {
      return AddScaled(Constant(Wide{elements} - 1 - last), form, -1);
    };
    // Most accesses are in range whatever the conditions around them are.
    budget_.steps = steps_max_;
    const bool has_work = budget_.work > 0;
    const LinearForm in_general = has_work ? unconditional_->FormOf(place) : Atom(place);
    const auto holds = [&](Prover& prover, const std::optional<LinearForm>& form) {
      return has_work && form && prover.NeverNegative(*form);
    };
    bool above = holds(*unconditional_, least_of(in_general));
    bool below = holds(*unconditional_, left_of(in_general));
    if (above && below) return true;
    if (condition != nullptr && condition->is_const() && condition->int_value() == 0) return true;
    if (condition != nullptr && IsGuardedAsWritten(memory, place, condition, first, last))
      return true;
    for (const auto divisions : Prover::kTries) {
      if (budget_.work <= 0) return false;
      budget_.steps = steps_max_;
      Prover prover = OfScopes(divisions);
      if (condition != nullptr) prover.Assume(condition, true);
      for (const LinearForm& form : {prover.FormOf(place), in_general}) {
        above = above || holds(prover, least_of(form));
        below = below || holds(prover, left_of(form));
      }
      if (above && below) return true;
    }
    return false;
  }

  // Whether the condition compares this very place with the ends of the memory, as GuardLoads does.
  bool IsGuardedAsWritten(ValueId memory, const UOp* place, const UOp* condition, int64_t first,
                          int64_t last) const {
    const int64_t elements = program_.code[memory].imm[1];
    bool above = false, below = false;
    std::vector<const UOp*> open = {condition};
    for (int steps = 0; !open.empty() && steps < kConditionStepsMax; ++steps) {
      const UOp* const node = open.back();
      open.pop_back();
      if (node->op == Op::kAnd) open.insert(open.end(), {node->src[1], node->src[0]});
      if (node->op != Op::kCmpLt) continue;
      const UOp *const a = node->src[0], *const b = node->src[1];
      above = above || (b == place && a->is_const() && a->int_value() >= -1 - first);
      below = below || (a == place && b->is_const() && b->int_value() <= elements - last);
    }
    return above && below;
  }

  // A prover that knows what the scopes that are open say, and nothing else: an access that shares
  // what was computed for others would be proved by less than its own steps.
  const Prover& OfScopes(Prover::Divisions divisions) {
    std::optional<Prover>& of_scopes = of_scopes_[static_cast<size_t>(divisions)];
    if (!of_scopes) {
      of_scopes.emplace(&budget_, divisions);
      AssumeScopes(*of_scopes);
    }
    return *of_scopes;
  }
  void ForgetScopes() {
    for (std::optional<Prover>& of_scopes : of_scopes_) of_scopes.reset();
  }

  // Of an IF, or of a loop that ends early: all that AssumeScopes asks.
  static bool SaysSomething(const Instruction& opener) {
    return opener.code == Code::kIf || !opener.src.empty();
  }

  void AssumeScopes(Prover& prover) {
    for (const ValueId scope : open_) {
      const Instruction& opener = program_.code[scope];
      if (opener.code == Code::kIf) prover.Assume(expressions_.Of(opener.src[0], 0), true);
      if (opener.code == Code::kLoop && !opener.src.empty())
        prover.Assume(expressions_.BelowLimit(scope), true);
    }
  }

  const Program& program_;
  Expressions expressions_;
  ProofBudget budget_;
  int64_t work_for_loads_ = kWorkMax;
  int64_t work_for_others_ = kWorkMax;
  // Knows the forms of all accesses so far.
  std::optional<Prover> unconditional_{std::in_place, &budget_};
  std::vector<ValueId> open_;
  // By Divisions; empty: not asked for since a scope was opened.
  std::array<std::optional<Prover>, std::size(Prover::kTries)> of_scopes_;
  int64_t steps_max_ = steps_of_proof;                     // of one proof
  absl::flat_hash_map<ValueId, int64_t> steps_for_loads_;  // by memory
};

}  // namespace

std::vector<ValueId> UnprovedAccesses(const Program& program, int64_t* work) {
  Checker checker(program);
  std::vector<ValueId> found = checker.Unproved();
  if (work != nullptr) *work = checker.work();
  return found;
}

absl::Status NotInRange(const Program& program, ValueId n) {
  const Instruction& access = program.code[n];
  const bool second = access.code == Code::kTileLoad || access.code == Code::kTileStore ||
                      access.code == Code::kWgmma;
  const Instruction& memory = program.code[access.src[second ? 1 : 0]];
  absl::Status status = absl::InternalError(
      absl::StrCat("program: ", std::string(program::Name(access.code)), " at ", n,
                   " is not shown to be within ", memory.imm[1], " elements: ",
                   ToString(program, n)));
  status.SetPayload(kNotInRange, absl::Cord());
  return status;
}

bool IsNotInRange(const absl::Status& status) {
  return status.GetPayload(kNotInRange).has_value();
}

absl::Status CheckInRange(const Program& program) {
  const std::vector<ValueId> found = UnprovedAccesses(program);
  return found.empty() ? absl::OkStatus() : NotInRange(program, found[0]);
}

FewerSteps::FewerSteps(int64_t steps) { steps_of_proof = std::min(steps, kStepsMax); }
FewerSteps::~FewerSteps() { steps_of_proof = kStepsMax; }

}  // namespace outboard::proof
