// cp.async: copies of 4 to 16 bytes into shared memory that each thread waits for by itself.
//
// The target's bytes are in flight from the copy to its thread's wait, in every run. Early runs
// copy at once, late runs at the wait.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

void Execution::CopyAsync(Warp* warp, const Instruction& in, uint32_t mask) {
  warp->has_copies = true;
  uint64_t targets[32], sources[32];
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t target =
        (in.a >= 0 ? warp->row(in.a)[lane] : 0) + static_cast<uint64_t>(in.offset);
    const uint64_t source = warp->row(in.b)[lane];
    targets[lane] = target;
    sources[lane] = source;
    ThreadCopy copy;
    copy.bytes = in.mode;
    copy.read_bytes = in.mode;
    if (in.c >= 0) {
      const uint32_t size = static_cast<uint32_t>(warp->row(in.c)[lane]);
      if (size > in.mode)
        return Tell(ReportKind::kMisuse, in, warp, lane, Space::kGlobal, source,
                    absl::StrCat("reads ", size, " bytes to write ", in.mode));
      copy.read_bytes = static_cast<uint8_t>(size);
    }
    Place to, from;
    if (!Resolve(warp, lane, in, Space::kShared, target, copy.bytes, copy.bytes, &to)) return;
    const Actor actor = LaneActor(warp, lane);
    if (copy.read_bytes > 0) {
      if (!Resolve(warp, lane, in, Space::kGlobal, source, copy.read_bytes, copy.bytes, &from))
        return;
      CheckRead(actor, in, from, copy.read_bytes);
      if (!status_.ok()) return;
    }
    CheckWrite(actor, in, to, copy.bytes);
    if (!status_.ok()) return;
    copy.target = static_cast<uint32_t>(to.offset);
    copy.source = source;
    if (!late()) LandThreadCopy(warp, lane, &copy, in);
    std::memset(to.region->state.data() + to.offset, kInFlight, copy.bytes);
    auto& groups = warp->copies[lane];
    if (groups.empty()) groups.emplace_back();
    groups.back().push_back(copy);
  }
  if (!counting_) return;
  CountGlobal(sources, mask, in.mode);
  CountShared(targets, mask, in.mode);
}

void Execution::LandThreadCopy(Warp* warp, int lane, ThreadCopy* copy, const Instruction& in) {
  if (copy->landed) return;
  copy->landed = true;
  uint8_t* to = warp->block->shared->data.data() + copy->target;
  std::memset(to, 0, copy->bytes);
  if (copy->read_bytes == 0) return;
  Region* from = memory_->Find(copy->source, copy->read_bytes);
  std::memcpy(to, from->data.data() + (copy->source - from->base), copy->read_bytes);
}

void Execution::CopyCommit(Warp* warp, uint32_t mask) {
  // An empty group counts, too.
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    auto& groups = warp->copies[std::countr_zero(m)];
    if (groups.empty()) groups.emplace_back();
    groups.emplace_back();
  }
}

void Execution::CopyWait(Warp* warp, const Instruction& in, uint32_t mask) {
  const bool all = in.offset < 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const int lane = std::countr_zero(m);
    auto& groups = warp->copies[lane];
    // The last one is open; wait_all waits for it, too.
    const size_t keep = all ? 0 : static_cast<size_t>(in.offset) + 1;
    while (groups.size() > keep) {
      for (ThreadCopy& copy : groups.front()) {
        LandThreadCopy(warp, lane, &copy, in);
        warp->block->shared->Written(copy.target, copy.bytes, warp->clock());
      }
      groups.pop_front();
    }
  }
}

}  // namespace outboard::ptx
