#include "compiler/render/ptx/join_accesses.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/program/passes/accesses.h"
#include "compiler/render/value_bounds.h"

namespace outboard::render {
namespace {

using program::Code;
using program::Instruction;
using program::Program;
using program::Space;
using program::ValueId;

constexpr int64_t kAccessBytesMax = 16;
constexpr size_t kOpenMax = 64;  // runs that may still grow

// Elements of a memory: `first` ... `first + count - 1` behind the value `root`.
struct Place {
  ValueId memory = -1, root = -1;
  int64_t first = 0, count = 0;

  bool Meets(const Place& other) const {
    if (memory != other.memory) return false;
    if (root != other.root) return true;  // nothing is known
    return first < other.first + other.count && other.first < first + count;
  }
};

// Loads or stores of elements that follow each other, in the program's order; or two loads whose
// second one is of the element before, as the bytes of a number are put together.
struct Run {
  Place place;
  bool stores = false;
  ValueId mask = -1, otherwise = -1;
  int64_t most = 0;  // elements that one access may have
  bool descending = false;       // the next member is the element before
  std::vector<ValueId> members;  // in the order of elements
  std::vector<Place> stored;  // since the first load
};

class Joiner {
 public:
  explicit Joiner(const Program& program) : in_(program), divisors_(DivisorsOf(program)) {}

  Program Joined() {
    for (ValueId n = 0; n < static_cast<ValueId>(in_.code.size()); ++n) Look(n);
    CloseAll();
    if (runs_.empty()) return in_;
    Rewrite();
    return std::move(out_);
  }

 private:
  const Instruction& at(ValueId n) const { return in_.code[static_cast<size_t>(n)]; }

  static bool IsAccess(const Instruction& i) {
    return i.code == Code::kLoad || i.code == Code::kStore;
  }
  bool IsPrivate(ValueId memory) const {
    return at(memory).code == Code::kAlloc &&
           at(memory).imm[0] == static_cast<int64_t>(Space::kPrivate);
  }

  // ---- finding runs

  void Look(ValueId n) {
    const Instruction& i = at(n);
    if (IsAccess(i) && IsPrivate(i.src[0])) return;
    if (IsAccess(i)) return Access(n);
    if (!program::IsPure(i.code) && i.code != Code::kMma && i.code != Code::kShuffle &&
        i.code != Code::kAlloc)
      CloseAll();
  }

  // Of several BUFFERs of one slot the first one.
  ValueId MemoryOf(ValueId memory) {
    if (at(memory).code != Code::kBuffer) return memory;
    return buffers_.try_emplace(at(memory).imm[0], memory).first->second;
  }

  void Access(ValueId n) {
    const Instruction& i = at(n);
    const bool stores = i.code == Code::kStore;
    const int lanes = stores ? at(i.src[2]).lanes : i.lanes;
    const auto [root, first] = program::WithoutConstants(in_, i.src[1]);
    Place place{MemoryOf(i.src[0]), root, first, lanes};
    if (at(place.root).code == Code::kConst) {
      place.first += at(place.root).imm[0];
      place.root = -1;
    }
    const bool single = lanes == 1 && at(i.src[1]).lanes == 1 && i.imm[0] == 0;
    // A vector of indices, or swizzled elements: anywhere.
    if (at(i.src[1]).lanes > 1 || (stores && i.imm[0] != 0)) place.root = i.src[1];
    const ValueId mask = i.src.size() < 4 ? -1 : i.src[stores ? 3 : 2];
    const ValueId otherwise = i.src.size() < 4 || stores ? -1 : i.src[3];
    bool joined = false;
    Place moved = place;  // all that a store takes along to here
    for (size_t r = 0; r < open_.size();) {
      Run& run = open_[r];
      if (!joined && single && run.mask == mask && run.otherwise == otherwise &&
          run.stores == stores && Continues(run, place)) {
        run.members.push_back(n);
        ++run.place.count;
        moved = run.place;
        joined = true;
      } else if (!joined && single && run.mask == mask && run.otherwise == otherwise && !stores &&
                 ComesBefore(run, place, n)) {
        run.members.insert(run.members.begin(), n);
        run.place.first = place.first;
        ++run.place.count;
        run.descending = false;
        joined = true;
      } else if (run.stores && run.place.Meets(place)) {
        Close(r);
        continue;
      }
      ++r;
    }
    for (Run& run : open_)
      if (stores && !run.stores && run.place.memory == place.memory) run.stored.push_back(moved);
    if (joined || !single) return;
    const int64_t width = ByteWidth(at(place.memory).dtype);
    int64_t most = std::min(divisors_[static_cast<size_t>(i.src[1])], kAccessBytesMax / width);
    const bool descending = most < 2 && !stores && width < kAccessBytesMax && IsSecond(place);
    if (descending) most = 2;
    if (most < 2) return;
    if (open_.size() == kOpenMax) Close(0);
    open_.push_back({place, stores, mask, otherwise, most, descending, {n}, {}});
  }

  // Whether it is the second one of two elements that one access may have. Of buffers alone: taking
  // a word apart costs more than a second load of the block's memory.
  bool IsSecond(const Place& place) const {
    if (at(place.memory).code != Code::kBuffer) return false;
    const bool is_even = place.root < 0 || divisors_[static_cast<size_t>(place.root)] % 2 == 0;
    return is_even && place.first % 2 != 0;
  }

  static bool Continues(const Run& run, const Place& place) {
    return run.place.memory == place.memory && run.place.root == place.root && !run.descending &&
           run.place.first + run.place.count == place.first && run.place.count < run.most &&
           std::ranges::none_of(run.stored, [&](const Place& s) { return s.Meets(place); });
  }
  // Both are loaded where the run's load is: the index is known there.
  bool ComesBefore(const Run& run, const Place& place, ValueId n) const {
    return run.descending && run.place.memory == place.memory && run.place.root == place.root &&
           place.first + 1 == run.place.first &&
           std::max(at(n).src[0], at(n).src[1]) < run.members[0] &&
           std::ranges::none_of(run.stored, [&](const Place& s) { return s.Meets(place); });
  }

  void Close(size_t r) {
    Run run = std::move(open_[r]);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(r));
    run.members.resize(std::bit_floor(run.members.size()));
    if (run.members.size() > 1) runs_.push_back(std::move(run));
  }
  void CloseAll() {
    while (!open_.empty()) Close(open_.size() - 1);
  }

  // ---- the new program

  ValueId Add(Instruction instruction) {
    out_.code.push_back(std::move(instruction));
    return static_cast<ValueId>(out_.code.size()) - 1;
  }
  ValueId New(ValueId old) const { return new_[static_cast<size_t>(old)]; }

  // One source of each member, as lanes of a value.
  ValueId Lanes(const Run& run, size_t source) {
    const Instruction& first = at(run.members[0]);
    Instruction lanes{.code = Code::kLanes,
                      .dtype = at(first.src[source]).dtype,
                      .lanes = static_cast<int>(run.members.size())};
    for (const ValueId member : run.members) lanes.src.push_back(New(at(member).src[source]));
    return Add(std::move(lanes));
  }

  void Rewrite() {
    out_ = in_;
    out_.code.clear();
    out_.code.reserve(in_.code.size() + 3 * runs_.size());
    new_.assign(in_.code.size(), -1);
    std::vector<const Run*> of(in_.code.size(), nullptr);
    for (const Run& run : runs_)
      for (const ValueId member : run.members) of[static_cast<size_t>(member)] = &run;
    for (ValueId n = 0; n < static_cast<ValueId>(in_.code.size()); ++n) {
      const Run* const run = of[static_cast<size_t>(n)];
      if (run == nullptr) {
        Instruction copy = at(n);
        for (ValueId& source : copy.src) source = New(source);
        new_[static_cast<size_t>(n)] = Add(std::move(copy));
      } else if (n == (run->stores ? std::ranges::max(run->members)
                                   : std::ranges::min(run->members))) {
        AddJoined(*run);
      }
    }
  }

  // A load where the first of them is, a store where the last one is.
  void AddJoined(const Run& run) {
    Instruction all = at(run.members[0]);
    all.src[0] = New(all.src[0]);
    all.src[1] = New(all.src[1]);
    for (size_t s = 2; s < all.src.size(); ++s) all.src[s] = Lanes(run, s);
    const auto lanes = static_cast<int>(run.members.size());
    all.lanes = lanes;
    if (run.stores) {
      Add(std::move(all));
      return;
    }
    const DType dtype = all.dtype;
    const ValueId loaded = Add(std::move(all));
    for (int lane = 0; lane < lanes; ++lane)
      new_[static_cast<size_t>(run.members[static_cast<size_t>(lane)])] =
          Add({.code = Code::kLane, .dtype = dtype, .src = {loaded}, .imm = {lane}});
  }

  const Program& in_;
  const std::vector<int64_t> divisors_;
  absl::flat_hash_map<int64_t, ValueId> buffers_;  // by slot
  std::vector<Run> open_, runs_;
  Program out_;
  std::vector<ValueId> new_;
};

}  // namespace

program::Program JoinAccesses(const program::Program& program) { return Joiner(program).Joined(); }

}  // namespace outboard::render
