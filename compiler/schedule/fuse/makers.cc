#include "compiler/schedule/fuse/makers.h"

namespace outboard::schedule {

std::optional<size_t> Makers::Of(const UOp* node) const {
  const auto maker = made_by_.find(node);
  if (maker == made_by_.end()) return std::nullopt;
  return maker->second;
}

KernelNeeds Makers::NeedsOf(const Draft& draft) const {
  KernelNeeds needs;
  for (const UOp* node : draft.reads) {
    if (const auto maker = Of(node)) needs.makers.push_back(*maker);
    if (const auto sent = sent_.find(node); sent != sent_.end())
      if (const auto sender = Of(sent->second)) needs.senders.push_back(*sender);
  }
  return needs;
}

std::vector<size_t> Makers::AwaitedBy(const Draft& draft) const {
  auto [awaited, senders] = NeedsOf(draft);
  awaited.insert(awaited.end(), senders.begin(), senders.end());
  return awaited;
}

std::vector<bool> Makers::MadeBefore(const Draft& guest, const std::vector<Draft>& drafts) const {
  std::vector<bool> before(drafts.size());
  for (const size_t sender : NeedsOf(guest).senders) before[sender] = true;
  std::vector<size_t> stack = AwaitedBy(guest);
  while (!stack.empty()) {
    const size_t maker = stack.back();
    stack.pop_back();
    for (const size_t i : AwaitedBy(drafts[maker]))
      if (i != maker && !before[i]) {
        before[i] = true;
        stack.push_back(i);
      }
  }
  return before;
}

}  // namespace outboard::schedule
