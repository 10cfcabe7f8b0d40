#include "compiler/schedule/collective/kernel_order.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/check.h"

namespace outboard::schedule {
namespace {

// Which kernels store what a transfer sends, or what such kernels are made of.
std::vector<bool> LeadToTransfers(const std::vector<KernelNeeds>& needs) {
  std::vector<bool> lead(needs.size());
  std::vector<size_t> stack;
  for (const KernelNeeds& kernel : needs)
    stack.insert(stack.end(), kernel.senders.begin(), kernel.senders.end());
  while (!stack.empty()) {
    const size_t i = stack.back();
    stack.pop_back();
    if (lead[i]) continue;
    lead[i] = true;
    stack.insert(stack.end(), needs[i].makers.begin(), needs[i].makers.end());
    stack.insert(stack.end(), needs[i].senders.begin(), needs[i].senders.end());
  }
  return lead;
}

// How many kernels follow one at most until the last transfer that it leads to starts, up to kFar.
// The gradient of a weight is near the transfer that sends it, the gradient of an activation, from
// which those of all layers before it follow, far from the last one.
constexpr size_t kFar = 4;
std::vector<size_t> Distances(const std::vector<KernelNeeds>& needs,
                              const std::vector<bool>& lead) {
  std::vector<size_t> distance(needs.size()), readers(needs.size()), stack;
  const auto makers_of = [&](size_t i, const auto& each) {
    for (const size_t maker : needs[i].makers)
      if (maker != i) each(maker);
  };
  for (size_t i = 0; i < needs.size(); ++i)
    if (lead[i]) makers_of(i, [&](size_t maker) { ++readers[maker]; });
  for (size_t i = 0; i < needs.size(); ++i)
    if (lead[i] && readers[i] == 0) stack.push_back(i);
  while (!stack.empty()) {
    const size_t i = stack.back();
    stack.pop_back();
    makers_of(i, [&](size_t maker) {
      distance[maker] = std::max(distance[maker], std::min(distance[i] + 1, kFar));
      if (--readers[maker] == 0) stack.push_back(maker);
    });
  }
  return distance;
}

}  // namespace

std::vector<size_t> OrderKernels(const std::vector<KernelNeeds>& needs) {
  struct Reader {
    size_t kernel;
    size_t transfers;  // between: 0 or 1
  };
  std::vector<std::vector<Reader>> readers(needs.size());
  // By kernel; sent_at: how many kernels run until the last transfer that it waits for can start.
  std::vector<size_t> order, waits(needs.size()), transfers(needs.size()), sent_at(needs.size());
  for (size_t i = 0; i < needs.size(); ++i) {
    const auto add = [&](const std::vector<size_t>& kernels, size_t between) {
      for (const size_t kernel : kernels)
        if (kernel != i) {
          readers[kernel].push_back({i, between});
          ++waits[i];
        }
    };
    add(needs[i].makers, 0);
    add(needs[i].senders, 1);
  }
  const std::vector<bool> lead = LeadToTransfers(needs);
  const std::vector<size_t> distance = Distances(needs, lead);
  std::set<std::tuple<size_t, bool, size_t, size_t, size_t>> ready;
  const auto is_ready = [&](size_t i) {
    ready.emplace(transfers[i], !lead[i], sent_at[i], distance[i], i);
  };
  for (size_t i = 0; i < needs.size(); ++i)
    if (waits[i] == 0) is_ready(i);
  while (!ready.empty()) {
    const size_t next = std::get<4>(*ready.begin());
    ready.erase(ready.begin());
    order.push_back(next);
    for (const Reader& reader : readers[next]) {
      size_t& passed = transfers[reader.kernel];
      passed = std::max(passed, transfers[next] + reader.transfers);
      size_t& sent = sent_at[reader.kernel];
      sent = std::max(sent, reader.transfers > 0 ? order.size() : sent_at[next]);
      if (--waits[reader.kernel] == 0) is_ready(reader.kernel);
    }
  }
  OB_CHECK(order.size() == needs.size());
  return order;
}

}  // namespace outboard::schedule
