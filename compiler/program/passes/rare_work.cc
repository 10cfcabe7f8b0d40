// Lets a branch skip long arithmetic that is needed only where a condition holds.
//
// WHERE (condition, work, other) computes both operands in every lane. Where `work` is long, and
// wanted by WHEREs of this condition alone, it moves into an IF of "the condition holds in some
// lane"; otherwise the WHEREs read zeros, which none of their lanes takes. Results are the same.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"

namespace outboard::program {
namespace {

// Below this a branch that the processor mispredicts costs more than the work: one costs about as
// much as 20 cycles, in which 40 to 80 instructions run.
constexpr size_t kWorkLeast = 100;
// Functions of f64 have 400. Bounds the time that this pass takes.
constexpr size_t kWorkMost = 1000;

bool IsArithmetic(Code code) {
  return code == Code::kAlu || code == Code::kCast || code == Code::kBitcast ||
         code == Code::kLanes || code == Code::kLane || code == Code::kConst;
}

// The WHEREs of one condition in one scope, and what only they want.
struct Work {
  ValueId before = 0;            // the first of the WHEREs: the branch stands before it
  std::vector<ValueId> wheres;
  std::vector<ValueId> code;     // in its order
  std::vector<ValueId> results;  // those of `code` that the WHEREs read
};

class RareWork : Copier {
 public:
  using Copier::Take;

  explicit RareWork(const Program& program)
      : Copier(program), scope_(program.code.size(), -1), users_(program.code.size(), 0) {
    std::vector<ValueId> open = {-1};
    for (ValueId n = 0; n < size(); ++n) {
      for (const ValueId s : at(n).src) ++users_[s];
      if (at(n).code == Code::kEnd || at(n).code == Code::kEndIf) open.pop_back();
      scope_[n] = open.back();
      if (at(n).code == Code::kLoop || at(n).code == Code::kIf) open.push_back(n);
    }
  }

  void Run() {
    absl::btree_map<ValueId, Work> works;  // by `before`
    absl::flat_hash_map<ValueId, ValueId> moved;
    for (Work& work : Find()) {
      for (const ValueId n : work.code) moved[n] = work.before;
      const ValueId before = work.before;
      works.emplace(before, std::move(work));
    }
    for (ValueId n = 0; n < size(); ++n) {
      if (const auto work = works.find(n); work != works.end()) Branch(work->second);
      if (!moved.contains(n)) Copy(n);
    }
  }

 private:
  bool IsWhere(ValueId n) const { return at(n).code == Code::kAlu && at(n).op == Op::kWhere; }

  std::vector<Work> Find() const {
    absl::btree_map<std::pair<ValueId, ValueId>, std::vector<ValueId>> wheres;
    for (ValueId n = 0; n < size(); ++n)
      if (IsWhere(n)) wheres[{scope_[n], at(n).src[0]}].push_back(n);
    std::vector<Work> candidates, found;
    for (const auto& [key, group] : wheres) {
      Work work = WorkOf(group);
      if (work.code.size() >= kWorkLeast) candidates.push_back(std::move(work));
    }
    // The least first, and then none around it: what is left of that is likely wanted.
    std::stable_sort(candidates.begin(), candidates.end(), [](const Work& a, const Work& b) {
      return a.code.size() < b.code.size();
    });
    std::vector<bool> taken(old_.code.size(), false);
    for (Work& work : candidates) {
      if (std::any_of(work.code.begin(), work.code.end(), [&](ValueId n) { return taken[n]; }))
        continue;
      for (const ValueId n : work.code) taken[n] = true;
      found.push_back(std::move(work));
    }
    // None of whose WHEREs one is within the work of another, which may move before it.
    std::erase_if(found, [&](const Work& work) {
      return taken[work.before] || std::ranges::any_of(work.wheres, [&](ValueId n) {
               return taken[n] && !std::ranges::binary_search(work.code, n);
             });
    });
    return found;
  }

  // Empty `code`: none that may move. Cost: O(kWorkMost), whatever the program's size.
  Work WorkOf(const std::vector<ValueId>& wheres) const {
    const ValueId before = wheres.front();
    Work work{.before = before, .wheres = wheres, .code = {}, .results = {}};
    absl::flat_hash_map<ValueId, size_t> wanted;  // by whom: the WHEREs, and the work found so far
    std::vector<ValueId> ready;
    const auto want = [&](ValueId n) {
      if (++wanted[n] == users_[n] && IsArithmetic(at(n).code) && scope_[n] == scope_[before])
        ready.push_back(n);
    };
    absl::btree_set<ValueId> inside, results;
    for (const ValueId where : wheres) {
      results.insert(at(where).src[1]);
      want(at(where).src[1]);
    }
    while (!ready.empty()) {
      const ValueId n = ready.back();
      ready.pop_back();
      if (inside.size() == kWorkMost) return work;
      inside.insert(n);
      for (const ValueId s : at(n).src) want(s);
    }
    for (const ValueId n : inside)
      for (const ValueId s : at(n).src)
        if (!inside.contains(s) && s >= before) return work;
    work.code.assign(inside.begin(), inside.end());
    for (const ValueId n : results)
      if (inside.contains(n)) work.results.push_back(n);
    return work;
  }

  ValueId Somewhere(ValueId condition) {
    const int lanes = b_.at(condition).lanes;
    ValueId any = -1;
    for (int lane = 0; lanes > 1 && lane < lanes; ++lane) {
      const ValueId one = b_.Add(
          {.code = Code::kLane, .dtype = DType::kBool, .src = {condition}, .imm = {lane, 0, 0}});
      any = any < 0 ? one : b_.Alu(Op::kOr, DType::kBool, {any, one});
    }
    return any < 0 ? condition : any;
  }

  void Branch(const Work& work) {
    std::vector<ValueId> memories;
    for (const ValueId n : work.results) {
      memories.push_back(b_.Alloc(Space::kPrivate, at(n).dtype, at(n).lanes));
      b_.Store(memories.back(), b_.Int(0), b_.Splat(b_.Const(at(n).dtype, 0), at(n).lanes));
    }
    const ValueId branch = b_.If(Somewhere(made_[at(work.before).src[0]]));
    for (const ValueId n : work.code) Copy(n);
    for (size_t k = 0; k < memories.size(); ++k)
      b_.Store(memories[k], b_.Int(0), made_[work.results[k]]);
    b_.EndIf(branch);
    for (size_t k = 0; k < memories.size(); ++k) {
      const ValueId n = work.results[k];
      made_[n] = b_.Add({.code = Code::kLoad,
                         .dtype = at(n).dtype,
                         .lanes = at(n).lanes,
                         .src = {memories[k], b_.Int(0)}});
    }
  }

  std::vector<ValueId> scope_;  // by instruction: what opens the innermost scope around it
  std::vector<size_t> users_;   // how often each is a source
};

}  // namespace

Program BranchAroundRareWork(const Program& program) {
  RareWork pass(program);
  pass.Run();
  return pass.Take();
}

}  // namespace outboard::program
