// A dry run: graphs and items are built and encoded as usual, then discarded. Shows the client-side
// cost of a program and the bytes that it would send, without a cloud and without data.
//
//   SetSession(MakeDrySession());
//   train();                                        // at the speed at which it builds graphs
//
// Errors: FAILED_PRECONDITION if a value is requested; there are none. Bytes that are put are
// counted in stats() and discarded. Threads: every method may be called from any thread.
#pragma once

#include <memory>

#include "client/session/session.h"

namespace outboard {

std::shared_ptr<Session> MakeDrySession();

}  // namespace outboard
