// A program that is started again and again, and stays the one that it was, whatever becomes of the
// file at its path; and which build of it that is. Two builds may make different code of one
// kernel, and the ranks of a session have to make the same.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace outboard::worker {

// The build id that the linker wrote into this ELF file, in hexadecimal digits, 32 at most. Empty:
// there is none, or the file cannot be read. Looks at kNotesBytesMax of notes at most.
std::string BuildIdOf(const std::string& path);

struct ProgramFile {
  std::string path;      // for people, and the name that it is started by
  std::string file;      // what is run: the file as it was opened; `path` where it has no build id
  std::string build_id;  // of it, then; BuildIdOf

  // To be called while the program runs, when nobody can write to it: whether it is still what it
  // was. Errors: UNAVAILABLE  the file was written over, not replaced by another
  absl::Status Check() const;
};

// The program at `path`, which this process opens once, when it asks for the first time, and keeps.
// A file that cannot be opened is tried again at the next call.
ProgramFile ProgramAt(const std::string& path);

// outboard-compiler, in the folder of this program.
ProgramFile CompilerProgram();

// Of a worker: this program's and that of outboard-compiler beside it, "ID" or "ID+ID".
std::string BuildOfWorker();

}  // namespace outboard::worker
