// Work in idle time takes only the processor time that nobody else wants: the search, and the
// compile processes that serve it.
#pragma once

namespace outboard::worker {

// Of the calling thread, and of the threads and processes that it starts.
void TakeLowestPriority();

}  // namespace outboard::worker
