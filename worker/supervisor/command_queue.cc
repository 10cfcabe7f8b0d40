#include "worker/supervisor/command_queue.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/framing.h"
#include "worker/process/passed_socket.h"

namespace outboard::worker {
namespace {

// Between two looks at the time, and at a kernel that has no room for more passed descriptors.
constexpr int kLookEveryMs = 100;

}  // namespace

CommandQueue::CommandQueue(CommandQueueOptions options)
    : options_(std::move(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Main(); }) {}

CommandQueue::~CommandQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
}

void CommandQueue::Push(const proto::ToExecutor& command, int passed) {
  Add({wire::Framed(command), passed, /*is_lent=*/false, command.has_begin()});
}

void CommandQueue::PushLent(const proto::ToExecutor& command, int lent) {
  Add({wire::Framed(command), lent, /*is_lent=*/true, command.has_begin()});
}

void CommandQueue::Close(const Entry& entry) {
  if (entry.passed >= 0 && !entry.is_lent) close(entry.passed);
}

void CommandQueue::Add(Entry entry) {
  bool is_full = false;
  {
    std::lock_guard lock(mutex_);
    if (entry.is_begin)
      std::erase_if(entries_, [](const Entry& queued) {
        if (queued.is_begin) Close(queued);
        return queued.is_begin;
      });
    is_full = stopping_ || entries_.size() >= options_.commands_max;
    if (!is_full) entries_.push_back(std::move(entry));
  }
  if (!is_full) {
    eventfd_write(wake_, 1);
    return;
  }
  Close(entry);
  GiveUp(absl::ResourceExhaustedError(
      absl::StrCat("an executor leaves more than ", options_.commands_max, " commands unread")));
}

void CommandQueue::GiveUp(const absl::Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  eventfd_write(wake_, 1);
  options_.on_stuck(why);
}

void CommandQueue::Main() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      lock.unlock();
      pollfd waited{wake_, POLLIN, 0};
      poll(&waited, 1, -1);
      eventfd_t ignored;
      eventfd_read(wake_, &ignored);
      lock.lock();
      continue;
    }
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    const bool sent = Send(entry);
    Close(entry);
    lock.lock();
    stopping_ |= !sent;
  }
  // Whoever has the other end of a socket that was never passed waits for it to close.
  for (const Entry& entry : entries_) Close(entry);
  entries_.clear();
}

bool CommandQueue::Send(const Entry& entry) {
  std::string_view rest = entry.bytes;
  int passed = entry.passed;
  Clock::time_point since = Clock::now();
  while (!rest.empty()) {
    const ssize_t sent = SendSome(options_.fd, rest, passed);
    if (sent > 0) {
      rest.remove_prefix(static_cast<size_t>(sent));
      passed = -1;
      since = Clock::now();
      continue;
    }
    if (errno == EINTR) continue;
    // This user has as many descriptors under way as it may have open.
    const bool has_room = errno == ETOOMANYREFS;
    if (errno != EAGAIN && !has_room) return false;
    if (options_.works()) since = Clock::now();
    if (Clock::now() - since > options_.patience) {
      GiveUp(absl::DeadlineExceededError("an executor without work does not read its commands"));
      return false;
    }
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return false;
    }
    const int wait_ms =
        static_cast<int>(std::min<int64_t>(kLookEveryMs, options_.patience.count() / 4 + 1));
    // Not for wake_: more commands do not make room.
    pollfd waited{has_room ? -1 : options_.fd, POLLOUT, 0};
    poll(&waited, 1, wait_ms);
  }
  return true;
}

}  // namespace outboard::worker
