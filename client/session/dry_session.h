// A dry run: what a program would send is built and encoded as ever, and thrown away. Shows what a
// program costs on its own side, and what it would send, without a cloud and without data.
//
//   SetSession(MakeDrySession());
//   train();                                        // at the speed at which it builds graphs
//
// Errors: FAILED_PRECONDITION where a value is asked for; there are none. Bytes that are put count
// in stats() and go nowhere. Threads: every method may be called from any thread.
#pragma once

#include <memory>

#include "client/session/session.h"

namespace outboard {

std::shared_ptr<Session> MakeDrySession();

}  // namespace outboard
