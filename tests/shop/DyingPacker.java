import java.io.IOException;
import java.nio.file.Path;

/** The packing service, which is killed by the first event: at a step that is its first argument. */
final class DyingPacker extends Packer {
    private final String step;

    private DyingPacker(String step, Path file) throws IOException {
        super(file);
        this.step = step;
    }

    @Override
    protected synchronized void pack(String order) throws IOException {
        if (step.equals("taken")) die();
        super.pack(order);
        if (step.equals("packed")) die();
    }

    private static void die() throws IOException {
        new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start();
        while (true) Thread.onSpinWait();
    }

    public static void main(String[] args) throws Exception {
        new DyingPacker(args[0], Path.of(args[2])).run(args[1]);
    }
}
