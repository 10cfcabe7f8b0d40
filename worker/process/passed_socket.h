// Passes a message together with a socket, or an open file, from one process of a worker to
// another, over a unix socket (SCM_RIGHTS; unix(7)).
#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace outboard::worker {

// As WriteMessage; the caller keeps ownership of `passed`.
// Errors: UNAVAILABLE  the peer has closed the socket
absl::Status WriteMessageWithDescriptor(int fd, const google::protobuf::MessageLite& message,
                                        int passed);
// As ReadMessage. Sets `passed` to the descriptor that came with the message, which the caller then
// owns and which is closed on exec, or to -1.
absl::Status ReadMessageWithDescriptor(int fd, google::protobuf::Message* message, int* passed);

}  // namespace outboard::worker
