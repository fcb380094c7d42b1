import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, whose start costs more than most of them.
 *
 * One line of input per tool: base64 of its arguments (class first) separated by NUL, a space, base64 of its input.
 * One line of output per tool: its exit code, a space, base64 of what it printed.
 */
public class RunTools {
    /** Where many tools do their last work, such as closing a producer. */
    private static final List<Runnable> HOOKS = new ArrayList<>();
    /** Of the first exit of the tool under way: it may catch what stops it there, and exit again. */
    private static Integer exitCode;

    private static final class Exited extends RuntimeException {
    }

    private static void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Exited();
    }

    public static void main(String[] args) {
        PrintStream answers = System.out;
        PrintStream realErrors = System.err;
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split(" ", -1);
            String[] words = text(parts[0]).split("\0", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(parts[1])));
            System.setOut(capture);
            System.setErr(capture);
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length), capture);
            System.setErr(realErrors);
            capture.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
        System.exit(0);
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static int run(String tool, String[] arguments, PrintStream capture) {
        HOOKS.clear();
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException problem) {
            if (exitCode == null) {
                problem.printStackTrace(capture);
                exitCode = 1;
            }
        }
        HOOKS.forEach(Runnable::run);
        return exitCode == null ? 0 : exitCode;
    }
}
