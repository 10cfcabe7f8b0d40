// Which build of a program this is. Two builds may make different code of one kernel, and the ranks
// of a session have to make the same.
#pragma once

#include <string>

namespace outboard::worker {

// The build id that the linker wrote into this ELF file, in hexadecimal digits, 32 at most. Empty:
// there is none, or the file cannot be read. Looks at kNotesBytesMax of notes at most.
std::string BuildIdOf(const std::string& path);

// Of a worker: this program's and that of outboard-compiler beside it, "ID" or "ID+ID".
std::string BuildOfWorker();

}  // namespace outboard::worker
