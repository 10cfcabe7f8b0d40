// A dry run: what a program would send, built and encoded as ever, and thrown away. For finding out
// what a program costs on its own side, and what it would send, without a cloud and without data.
//
//   SetEngine(MakeDryEngine());
//   train();                                        // at the speed at which it builds graphs
//
// Errors: FAILED_PRECONDITION where a value is asked for; there are none. Bytes that are put count
// in stats() and go nowhere. Threads: every method may be called from any thread.
#pragma once

#include <memory>

#include "client/tensor/engine.h"

namespace outboard {

std::shared_ptr<Engine> MakeDryEngine();

}  // namespace outboard
