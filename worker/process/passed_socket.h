// Passes a message together with a socket, or an open file, from one process of a worker to
// another, over a unix socket (SCM_RIGHTS; unix(7)).
#pragma once

#include <google/protobuf/message.h>
#include <sys/types.h>

#include <string_view>

#include "absl/status/status.h"

namespace outboard::worker {

// As send(2) with MSG_NOSIGNAL and MSG_DONTWAIT; `passed`, unless it is -1, goes with the first
// byte.
ssize_t SendSome(int fd, std::string_view bytes, int passed);

// As WriteMessage; the caller keeps ownership of `passed`.
// Errors: UNAVAILABLE  the peer has closed the socket
absl::Status WriteMessageWithDescriptor(int fd, const google::protobuf::MessageLite& message,
                                        int passed);
// As ReadMessage. Sets `passed` to the descriptor that came with the message, which the caller then
// owns and which is closed on exec, or to -1.
absl::Status ReadMessageWithDescriptor(int fd, google::protobuf::Message* message, int* passed);

}  // namespace outboard::worker
