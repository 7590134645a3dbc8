// What packages that write files of their own, a piece at a time, use of the formats.
#pragma once
#include "append_file.h"
#include "npy.h"
#include "safetensors.h"
#include "zip.h"
