#include "worker/supervisor/held_sessions.h"

#include <algorithm>
#include <utility>

namespace outboard::worker {

void HeldSessions::Add(const std::string& id, std::unique_ptr<SessionExecutors> executors) {
  std::lock_guard lock(mutex_);
  sessions_[id] = std::move(executors);
}

void HeldSessions::MarkEnded(const std::string& id) {
  std::lock_guard lock(mutex_);
  ended_.push_back(id);
}

bool HeldSessions::Has(const std::string& id) const {
  std::lock_guard lock(mutex_);
  return sessions_.contains(id);
}

size_t HeldSessions::count() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

size_t HeldSessions::running_count() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      sessions_, [&](const auto& session) { return !HasEnded(session.first); }));
}

bool HeldSessions::AnyUses(uint32_t device) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(sessions_, [&](const auto& session) {
    return std::ranges::count(session.second->assign().devices(), device) > 0;
  });
}

void HeldSessions::Describe(proto::Register& entry) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, executors] : sessions_)
    if (!HasEnded(id)) *entry.add_sessions() = executors->Described();
}

void HeldSessions::Describe(proto::Heartbeat& heartbeat) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, executors] : sessions_) {
    heartbeat.add_sessions(id);
    heartbeat.add_memory_bytes(executors->memory_bytes());
  }
}

void HeldSessions::Release(const std::string& id) { Take(id).reset(); }

void HeldSessions::ReleaseAllBut(const std::set<std::string>& kept) {
  std::vector<std::string> over;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, executors] : sessions_)
      if (!kept.contains(id)) over.push_back(id);
  }
  for (const std::string& id : over) Release(id);
}

void HeldSessions::Reap() {
  std::vector<std::string> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (const std::string& id : ended) Release(id);
}

void HeldSessions::EndAll() {
  std::map<std::string, std::unique_ptr<SessionExecutors>> sessions;
  {
    std::lock_guard lock(mutex_);
    sessions.swap(sessions_);
  }
  for (auto& [id, executors] : sessions) executors->End();
  sessions.clear();
  std::lock_guard lock(mutex_);
  ended_.clear();
}

void HeldSessions::ForEach(const std::function<void(SessionExecutors&)>& visit) const {
  for (const auto& [id, executors] : sessions_) visit(*executors);
}

std::unique_ptr<SessionExecutors> HeldSessions::Take(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  std::unique_ptr<SessionExecutors> executors = std::move(found->second);
  sessions_.erase(found);
  return executors;
}

bool HeldSessions::HasEnded(const std::string& id) const {
  return std::ranges::find(ended_, id) != ended_.end();
}

}  // namespace outboard::worker
