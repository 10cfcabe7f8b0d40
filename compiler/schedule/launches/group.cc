#include "compiler/schedule/launches/group.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "compiler/copies.h"

namespace outboard::schedule {
namespace {

// A set of kernels.
class Bits {
 public:
  explicit Bits(size_t size) : words_((size + 63) / 64) {}
  void Set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void Clear(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool Has(size_t i) const { return ((words_[i / 64] >> (i % 64)) & 1) != 0; }
  void Add(const Bits& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  bool HasAllOf(const Bits& other) const {
    for (size_t w = 0; w < words_.size(); ++w)
      if ((other.words_[w] & ~words_[w]) != 0) return false;
    return true;
  }

 private:
  std::vector<uint64_t> words_;
};

// Equal kernels.
struct Twins {
  std::set<size_t> ready;  // nothing that they wait for is left
  Bits later;              // those that wait
  Bits behind_ready;       // all that waits for one that is ready
  const UOp* kernel;
  int64_t slots;

  Twins(size_t kernels, const FusedKernel& one)
      : later(kernels),
        behind_ready(kernels),
        kernel(one.ast),
        slots(static_cast<int64_t>(one.buffers.size())) {}
};

// Copies of a kernel that a launch has room for; one at least.
size_t CopiesMax(int64_t slots, int64_t maps) {
  int64_t most = 1;
  while (most < limits::kCopiesMax &&
         ParameterBytes(most + 1, slots, maps) <= limits::kParameterBytesMax)
    ++most;
  return static_cast<size_t>(most);
}

// Of `count` kernels in launches of at most `most`, which are about equally large.
size_t SizeOfLaunch(size_t count, size_t most) {
  const size_t launches = (count + most - 1) / most;
  return (count + launches - 1) / launches;
}

class Grouper {
 public:
  Grouper(const std::vector<FusedKernel>& kernels, const WrittenOver& over,
          const MapsOfCopy& maps_of)
      : kernels_(kernels),
        maps_of_(maps_of),
        waits_(kernels.size()),
        readers_(kernels.size()) {
    FindOrder(over);
    FindTwins();
  }

  Launches Run() {
    Launches launches;
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (waits_[k] == 0) MakeReady(k);
    while (!ready_.empty()) {
      const std::vector<size_t> launch = Next();
      for (const size_t k : launch) {
        launches.order.push_back(k);
        launches.together.push_back(k == launch[0] ? static_cast<int>(launch.size()) : 0);
        ready_.erase(k);
        twins_[twins_of_[k]].ready.erase(k);
      }
      RenewBehind(twins_[twins_of_[launch[0]]]);
      for (const size_t k : launch)
        for (const size_t reader : readers_[k])
          if (--waits_[reader] == 0) MakeReady(reader);
    }
    OB_CHECK(launches.order.size() == kernels_.size());
    return launches;
  }

 private:
  // One after the other where they use the same memory and at least one writes it.
  void FindOrder(const WrittenOver& over) {
    absl::flat_hash_map<const UOp*, size_t> writer;
    absl::flat_hash_map<const UOp*, std::vector<size_t>> since;  // that read what was written last
    const auto after = [&](size_t first, size_t second) {
      if (first == second) return;
      readers_[first].push_back(second);
      ++waits_[second];
    };
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const FusedKernel& kernel = kernels_[k];
      for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
        const auto input = over.find(kernel.buffers[slot]);
        const UOp* const memory = input == over.end() ? kernel.buffers[slot] : input->second;
        if (const auto last = writer.find(memory); last != writer.end()) after(last->second, k);
        if (slot >= static_cast<size_t>(kernel.stores)) {
          since[memory].push_back(k);
          continue;
        }
        for (const size_t reader : since[memory]) after(reader, k);
        since[memory].clear();
        writer[memory] = k;
      }
    }
    behind_.assign(kernels_.size(), Bits(kernels_.size()));
    for (size_t k = kernels_.size(); k-- > 0;)
      for (const size_t reader : readers_[k]) {
        behind_[k].Set(reader);
        behind_[k].Add(behind_[reader]);
      }
  }

  void FindTwins() {
    absl::flat_hash_map<const UOp*, size_t> known;  // nodes that are equal are one
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const auto [place, fresh] = known.emplace(kernels_[k].ast, twins_.size());
      if (fresh) twins_.emplace_back(kernels_.size(), kernels_[k]);
      twins_[place->second].later.Set(k);
      twins_of_.push_back(place->second);
    }
  }

  void MakeReady(size_t k) {
    Twins& twins = twins_[twins_of_[k]];
    ready_.insert(k);
    twins.ready.insert(k);
    twins.later.Clear(k);
    twins.behind_ready.Add(behind_[k]);
  }

  void RenewBehind(Twins& twins) {
    twins.behind_ready = Bits(kernels_.size());
    for (const size_t k : twins.ready) twins.behind_ready.Add(behind_[k]);
  }

  // The first one that gains nothing by waiting, with all that are like it and ready; if all would
  // gain, the first one.
  std::vector<size_t> Next() const {
    size_t first = *ready_.begin();
    absl::flat_hash_set<size_t> gain;  // of twins_
    for (const size_t k : ready_) {
      const Twins& twins = twins_[twins_of_[k]];
      if (gain.contains(twins_of_[k])) continue;
      if (!twins.behind_ready.HasAllOf(twins.later)) {
        gain.insert(twins_of_[k]);
        continue;
      }
      first = k;
      break;
    }
    const Twins& twins = twins_[twins_of_[first]];
    std::vector<size_t> launch(twins.ready.begin(), twins.ready.end());
    launch.resize(CopiesOfLaunch(twins));
    return launch;
  }

  // Of those that are ready. Fewer copies may have another tile, and other views.
  size_t CopiesOfLaunch(const Twins& twins) const {
    const size_t count = twins.ready.size();
    size_t size = SizeOfLaunch(count, CopiesMax(twins.slots, 0));
    while (size > 1 && maps_of_ != nullptr) {
      const size_t most =
          CopiesMax(twins.slots, maps_of_(twins.kernel, static_cast<int64_t>(size)));
      if (size <= most) break;
      size = SizeOfLaunch(count, most);
    }
    return size;
  }

  const std::vector<FusedKernel>& kernels_;
  const MapsOfCopy& maps_of_;
  std::vector<size_t> waits_;                 // how many others it waits for, each time counted
  std::vector<std::vector<size_t>> readers_;  // that wait for it
  std::vector<Bits> behind_;                  // all that wait for it
  std::vector<Twins> twins_;
  std::vector<size_t> twins_of_;
  std::set<size_t> ready_;
};

}  // namespace

Launches SingleLaunches(size_t kernels) {
  Launches launches;
  launches.order.resize(kernels);
  std::iota(launches.order.begin(), launches.order.end(), size_t{0});
  launches.together.assign(kernels, 1);
  return launches;
}

Launches GroupLaunches(const std::vector<FusedKernel>& kernels, const WrittenOver& over,
                       const MapsOfCopy& maps_of) {
  if (kernels.size() > kGroupedKernelsMax) return SingleLaunches(kernels.size());
  Launches launches = Grouper(kernels, over, maps_of).Run();
  const bool any = std::ranges::any_of(launches.together, [](int count) { return count > 1; });
  return any ? launches : SingleLaunches(kernels.size());
}

}  // namespace outboard::schedule
