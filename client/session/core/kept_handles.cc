#include "client/session/core/kept_handles.h"

#include <algorithm>
#include <utility>

namespace outboard::session {

std::vector<uint64_t> KeptHandles::Set(
    const std::vector<std::pair<uint64_t, uint64_t>>& handle_by_id) {
  const std::map<uint64_t, uint64_t> before = std::exchange(handle_by_id_, {});
  for (const auto& [id, handle] : handle_by_id) {
    handle_by_id_[id] = handle;
    ++by_handle_[handle].names;
  }
  std::vector<uint64_t> ended;
  for (const auto& [id, handle] : before) Drop(handle, ended);
  return ended;
}

void KeptHandles::Drop(uint64_t handle, std::vector<uint64_t>& ended) {
  const auto held = by_handle_.find(handle);
  if (held == by_handle_.end() || --held->second.names > 0) return;
  if (held->second.is_released) ended.push_back(handle);
  by_handle_.erase(held);
}

bool KeptHandles::Release(uint64_t handle) {
  const auto held = by_handle_.find(handle);
  if (held == by_handle_.end()) return false;
  held->second.is_released = true;
  return true;
}

bool KeptHandles::Take(uint64_t handle) {
  const auto held = by_handle_.find(handle);
  if (held == by_handle_.end()) return false;
  held->second.is_released = false;
  return true;
}

std::vector<uint64_t> KeptHandles::OnRun(const RunRequest& request, proto::Run& run) {
  std::vector<uint64_t> ended;
  if (by_handle_.empty()) return ended;
  for (const Rekept& rekept : request.rekept) {
    const auto name = handle_by_id_.find(rekept.id);
    if (name == handle_by_id_.end()) continue;  // of a Keep before the last
    proto::Rekept& out = *run.add_rekept();
    out.set_id(rekept.id);
    out.set_output(rekept.output);
    const uint64_t before = std::exchange(name->second, request.outputs[rekept.output]);
    ++by_handle_[name->second].names;
    Drop(before, ended);
  }
  auto& donate = *run.mutable_donate();
  donate.erase(std::remove_if(donate.begin(), donate.end(),
                              [&](uint32_t index) { return Release(request.inputs[index]); }),
               donate.end());
  return ended;
}

}  // namespace outboard::session
