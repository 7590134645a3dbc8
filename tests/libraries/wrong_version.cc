// A library that was built for another version of the interface.
#include <postern/library.h>

extern "C" __attribute__((visibility("default"))) const PosternLibrary* postern_library() {
  static const PosternLibrary library{sizeof(PosternLibrary), 999, "wrong_version", "1", [] {}};
  return &library;
}
