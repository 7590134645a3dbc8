/* Runs a saved program from C, with functions in C and then with a thread that serves a bridge:
   c_client FILE. */
#include <postern/c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shown = 0, released = 0;

static int scale(void* user, const pn_firing* f) {
  const float factor = *(const float*)user;
  const float* in = f->operands[0].data;
  float* out = f->results[0].data;
  for (size_t i = 0; i < f->operands[0].bytes / sizeof(float); ++i) out[i] = factor * in[i];
  double said;
  if (pn_attribute_double(f, "factor", &said) != PN_OK || said != factor) {
    pn_fail("no factor");
    return PN_INVALID_ARGUMENT;
  }
  return PN_OK;
}
static int note(void* user, const pn_firing* f) {
  (void)user;
  shown += f->result_count == 0 && f->operand_count == 1;
  return PN_OK;
}
static int refuse(void* user, const pn_firing* f) {
  (void)user;
  (void)f;
  pn_fail("out of stock");
  return PN_RESOURCE_EXHAUSTED;
}
static void release(void* user) {
  (void)user;
  ++released;
}

static void must(int code, const char* what) {
  if (code == PN_OK) return;
  printf("%s: %d %s\n", what, code, pn_last_error());
  exit(1);
}

static void* serve(void* bridge) {
  const pn_request* request;
  while (pn_bridge_next(bridge, -1, &request) == PN_OK) {
    if (strcmp(request->firing.function, "demo.scale") == 0) {
      const float* in = request->firing.operands[0].data;
      float* out = request->firing.results[0].data;
      const size_t count = request->firing.operands[0].bytes / sizeof(float);
      for (size_t i = 0; i < count; ++i) out[i] = 10 * in[i];
    }
    must(pn_bridge_reply(bridge, request->tag, NULL, 0), "reply");
  }
  return NULL;
}

static float run(const pn_program* program) {
  const float numbers[] = {1, 2, 3};
  const int64_t dims[] = {3};
  pn_array array = {PN_F32, 1, dims, (void*)numbers, sizeof numbers}, seen;
  pn_tensor *argument, *result;
  float value;
  must(pn_tensor_copy(&array, &argument), "argument");
  must(pn_run(program, (const pn_tensor* const*)&argument, 1, &result), "run");
  must(pn_tensor_view(result, &seen), "view");
  value = *(const float*)seen.data;
  pn_tensor_free(argument);
  pn_tensor_free(result);
  return value;
}

int main(int count, char** arguments) {
  float three = 3;
  pn_program* program;
  pn_bridge* bridge;
  pthread_t thread;
  if (count != 2 || pn_version() < PN_C_VERSION) return 2;
  printf("%d ", pn_load_file("/no/such/file", &program));
  must(pn_load_file(arguments[1], &program), "load");
  printf("%s %s %s ", pn_program_input(program, 0), pn_program_output(program, 0),
         pn_program_function(program, 1));
  must(pn_register("demo.scale", scale, &three, release, 0), "register");
  must(pn_register("demo.log", note, NULL, NULL, 0), "register");
  printf("%g ", run(program));
  must(pn_barrier(-1), "barrier");
  must(pn_bridge_create(&bridge), "bridge");
  must(pn_bridge_serve(bridge, "demo.scale", 1), "serve");
  must(pthread_create(&thread, NULL, serve, bridge), "thread");
  printf("%g ", run(program));
  pn_bridge_close(bridge);
  pthread_join(thread, NULL);
  pn_bridge_free(bridge);
  must(pn_register("demo.scale", refuse, NULL, NULL, 1), "register");
  {
    const float numbers[] = {1, 2, 3};
    const int64_t dims[] = {3};
    pn_array array = {PN_F32, 1, dims, (void*)numbers, sizeof numbers};
    pn_tensor *argument, *result = NULL;
    must(pn_tensor_copy(&array, &argument), "argument");
    printf("%d %d ", pn_run(program, (const pn_tensor* const*)&argument, 1, &result) == PN_THREW,
           result == NULL);
    printf("%d ", strstr(pn_last_error(), "out of stock") != NULL);
    pn_tensor_free(argument);
  }
  pn_program_free(program);
  printf("%d %d\n", shown, released);
  return 0;
}
