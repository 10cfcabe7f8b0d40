// A message with a socket beside it, from one process of a worker to another over a unix socket
// (SCM_RIGHTS; unix(7)).
#pragma once

#include <google/protobuf/message_lite.h>

#include "absl/status/status.h"

namespace outboard::worker {

// As WriteMessage; `passed` stays the caller's.
// Errors: UNAVAILABLE  the other side is gone
absl::Status WriteMessageWithSocket(int fd, const google::protobuf::MessageLite& message,
                                    int passed);
// As ReadMessage. `passed` is the socket that came with the message, which is now the caller's and
// is closed on exec, or -1.
absl::Status ReadMessageWithSocket(int fd, google::protobuf::MessageLite* message, int* passed);

}  // namespace outboard::worker
