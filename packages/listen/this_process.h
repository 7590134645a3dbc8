// Which process this is, for who reads of it elsewhere: the report, the live page.
#pragma once
#include <postern/error.h>

#include <string>

namespace postern::internal::host {

struct ThisProcess {
  std::string host, program, arguments;  // "machine", "train", "--steps 100"
  std::string version;                   // of Postern
};
/// Returns what the system says; empty where it says nothing.
POSTERN_API ThisProcess this_process();

}  // namespace postern::internal::host
