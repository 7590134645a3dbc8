// For client.cc: it brings in the C header.
#pragma once
#include <pjrt_c_api.h>

namespace postern::internal::pjrt {

/// Names the store of the thread's KeyValueScope, if there is one.
void give_key_values(PJRT_Client_Create_Args& args);

}  // namespace postern::internal::pjrt
