#include "worker/executor/executor_sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/limits.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"
#include "worker/process/passed_socket.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A Begin may bring any socket to kDataSocket; until then the number must be nobody else's.
void Reserve() { OB_CHECK(dup3(kChildSocket, kDataSocket, O_CLOEXEC) == kDataSocket); }

// Waits until one of the sockets can be read, or `patience` is over. Bits: 1 control, 2 data.
int Poll(bool has_data, std::optional<milliseconds> patience) {
  const Clock::time_point deadline = Clock::now() + patience.value_or(milliseconds(0));
  for (;;) {
    int wait = -1;
    if (patience)
      wait = static_cast<int>(
          std::max<int64_t>(0, std::chrono::ceil<milliseconds>(deadline - Clock::now()).count()));
    pollfd sockets[] = {{kChildSocket, POLLIN, 0}, {kDataSocket, POLLIN, 0}};
    const int ready = poll(sockets, has_data ? 2 : 1, wait);
    if (ready < 0 && errno == EINTR) continue;
    return (sockets[0].revents != 0 ? 1 : 0) | (has_data && sockets[1].revents != 0 ? 2 : 0);
  }
}

}  // namespace

ExecutorSockets::ExecutorSockets() : reader_(wire::kMessageBytesMax) { Reserve(); }

void ExecutorSockets::DropData() {
  Reserve();
  has_data_ = false;
  reader_.Clear();
}

ExecutorSockets::Came ExecutorSockets::Next(proto::ClientFrame& frame, proto::ToExecutor& command,
                                            int& passed, std::optional<milliseconds> patience) {
  passed = -1;
  for (;;) {
    if (has_data_) {
      const absl::StatusOr<bool> taken = reader_.Take(frame);
      if (!taken.ok()) {
        DropData();
      } else if (*taken) {
        return Came::kFrame;
      }
    }
    const int ready = Poll(has_data_, patience);
    if (ready == 0) return Came::kNothing;
    if ((ready & 1) != 0) return ReadCommand(command, passed);
    if (!reader_.Fill(kDataSocket).ok()) DropData();
  }
}

ExecutorSockets::Came ExecutorSockets::ReadCommand(proto::ToExecutor& command, int& passed) {
  if (!ReadMessageWithDescriptor(kChildSocket, &command, &passed).ok()) return Came::kEnd;
  if (command.has_begin() && passed >= 0) {
    OB_CHECK(dup3(passed, kDataSocket, O_CLOEXEC) == kDataSocket);
    close(std::exchange(passed, -1));
    reader_.Clear();
    has_data_ = true;
  }
  return Came::kCommand;
}

bool ExecutorSockets::Knocked(milliseconds patience) { return Poll(has_data_, patience) != 0; }

void ExecutorSockets::Send(const proto::ServerFrame& frame) {
  // A half-written frame cannot be followed by another.
  if (has_data_ && !WriteMessage(kDataSocket, frame).ok()) DropData();
}

void ExecutorSockets::Tell(const proto::FromExecutor& event) {
  std::lock_guard lock(tell_mutex_);
  WriteMessage(kChildSocket, event).IgnoreError();  // Next sees the end
}

}  // namespace outboard::worker
